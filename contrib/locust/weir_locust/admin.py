"""The calls that change and show the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from .session import Limits


class AdminCalls:
    """Configuration calls. Each fires an event, a list one per page, and raises WeirError if it fails.

    The event's name is the entity, the resource or "system", in this order, unless you give the call another name.
    """

    def call(
        self,
        request_type: str,
        name: str,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        accept: Sequence[int] = (),
        context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Send a request: see WeirSession."""
        raise NotImplementedError

    def set_system_defaults(self, limits: Limits, *, name: str | None = None) -> dict[str, Any]:
        """Set the limits that apply if no other level has any. Fires SET_SYSTEM_DEFAULTS."""
        return self._limits("SET_SYSTEM_DEFAULTS", name, "PUT", limits)

    def get_system_defaults(self, *, name: str | None = None) -> dict[str, Any]:
        """Return the limits set by set_system_defaults. Fires GET_SYSTEM_DEFAULTS."""
        return self._limits("GET_SYSTEM_DEFAULTS", name, "GET")

    def delete_system_defaults(self, *, name: str | None = None) -> None:
        """Delete the limits set by set_system_defaults. Fires DELETE_SYSTEM_DEFAULTS."""
        self._limits("DELETE_SYSTEM_DEFAULTS", name, "DELETE")

    def set_resource_defaults(self, resource: str, limits: Limits, *, name: str | None = None) -> dict[str, Any]:
        """Set a resource's limits for every entity without its own. Fires SET_RESOURCE_DEFAULTS."""
        return self._limits("SET_RESOURCE_DEFAULTS", name, "PUT", limits, resource=resource)

    def get_resource_defaults(self, resource: str, *, name: str | None = None) -> dict[str, Any]:
        """Return the limits set by set_resource_defaults. Fires GET_RESOURCE_DEFAULTS."""
        return self._limits("GET_RESOURCE_DEFAULTS", name, "GET", resource=resource)

    def delete_resource_defaults(self, resource: str, *, name: str | None = None) -> None:
        """Delete the limits set by set_resource_defaults. Fires DELETE_RESOURCE_DEFAULTS."""
        self._limits("DELETE_RESOURCE_DEFAULTS", name, "DELETE", resource=resource)

    def list_resources_with_defaults(self, *, name: str | None = None) -> list[str]:
        """Return the resources that have limits of their own. Fires LIST_RESOURCES_WITH_DEFAULTS."""
        scopes = self._pages("LIST_RESOURCES_WITH_DEFAULTS", name or "system", "/v1/limits/list")
        return [s["resource"] for s in scopes]

    def set_limits(
        self, entity: str, limits: Limits, resource: str | None = None, *, name: str | None = None
    ) -> dict[str, Any]:
        """Set an entity's limits on a resource, or without a resource its defaults. Fires SET_LIMITS."""
        return self._limits("SET_LIMITS", name, "PUT", limits, entity=entity, resource=resource)

    def get_limits(self, entity: str, resource: str | None = None, *, name: str | None = None) -> dict[str, Any]:
        """Return the limits set by set_limits. Fires GET_LIMITS."""
        return self._limits("GET_LIMITS", name, "GET", entity=entity, resource=resource)

    def delete_limits(self, entity: str, resource: str | None = None, *, name: str | None = None) -> None:
        """Delete the limits set by set_limits. Fires DELETE_LIMITS."""
        self._limits("DELETE_LIMITS", name, "DELETE", entity=entity, resource=resource)

    def create_entity(
        self,
        entity: str,
        *,
        parent: str | None = None,
        cascade: bool = False,
        display_name: str | None = None,
        metadata: Mapping[str, str] | None = None,
        exist_ok: bool = False,
        name: str | None = None,
    ) -> dict[str, Any] | None:
        """Create an entity; only entities with a parent, a name or metadata need this.

        With cascade, its requests charge the parent too. Fires CREATE_ENTITY. Returns None if the entity existed, which
        is a failure unless exist_ok is set.
        """
        body: dict[str, Any] = {"id": entity, "cascade": cascade}
        if parent is not None:
            body["parent"] = parent
        if display_name is not None:
            body["name"] = display_name
        if metadata is not None:
            body["metadata"] = dict(metadata)
        created: dict[str, Any] | None = self.call(
            "CREATE_ENTITY", name or entity, "POST", "/v1/entities", body=body, accept=(409,) if exist_ok else ()
        )
        return created

    def get_entity(self, entity: str, *, name: str | None = None) -> dict[str, Any]:
        """Return the entity. Fires GET_ENTITY."""
        said: dict[str, Any] = self.call("GET_ENTITY", name or entity, "GET", _entity(entity))
        return said

    def delete_entity(
        self, entity: str, *, children: bool = False, missing_ok: bool = False, name: str | None = None
    ) -> None:
        """Delete an entity, and with children also those below it. Fires DELETE_ENTITY."""
        query = {"children": "true"} if children else None
        accept = (404,) if missing_ok else ()
        self.call("DELETE_ENTITY", name or entity, "DELETE", _entity(entity), query=query, accept=accept)

    def get_children(self, entity: str, *, name: str | None = None) -> list[dict[str, Any]]:
        """Return the entity's children. Fires GET_CHILDREN."""
        return self._pages("GET_CHILDREN", name or entity, _entity(entity) + "/children")

    def _limits(
        self,
        request_type: str,
        name: str | None,
        method: str,
        limits: Limits | None = None,
        *,
        entity: str | None = None,
        resource: str | None = None,
    ) -> dict[str, Any]:
        query = {k: v for k, v in (("entity", entity), ("resource", resource)) if v is not None}
        name = name or entity or resource or "system"
        body = {"limits": list(limits)} if limits is not None else None
        said: dict[str, Any] = self.call(
            request_type, name, method, "/v1/limits", query=query, body=body, context=query
        )
        return said

    def _pages(self, request_type: str, name: str, path: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        query = {"max": "1000"}
        while True:
            page = self.call(request_type, name, "GET", path, query=query)
            items += page["items"]
            if not page.get("next"):
                return items
            query["after"] = page["next"]


def _entity(entity: str) -> str:
    return "/v1/entities/" + quote(entity, safe="")
