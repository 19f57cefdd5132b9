from __future__ import annotations

import pytest
from conftest import Connect

from weir_locust import WeirError


def test_each_call_is_an_event(connect: Connect) -> None:
    session, seen = connect()
    session.set_system_defaults(["rpm:1/min"])
    assert session.get_system_defaults()["source"] == "system"
    session.delete_system_defaults()
    session.set_resource_defaults("openai/gpt-4o", [{"name": "rpm", "amount": 2, "period": "min"}])
    assert session.get_resource_defaults("openai/gpt-4o")["limits"][0]["amount"] == 2
    assert session.list_resources_with_defaults() == ["openai/gpt-4o"]
    session.delete_resource_defaults("openai/gpt-4o")
    session.create_entity("org")
    session.create_entity("key/1", parent="org", cascade=True, display_name="Alice", metadata={"team": "a"})
    child = session.get_entity("key/1")
    assert (child["parent"], child["name"], child["metadata"]) == ("org", "Alice", {"team": "a"})
    assert [e["id"] for e in session.get_children("org")] == ["key/1"]
    session.set_limits("key/1", ["rpm:3/min"], "gpt-4")
    assert session.get_limits("key/1", "gpt-4")["limits"][0]["amount"] == 3
    session.delete_limits("key/1", "gpt-4")
    session.set_limits("key/1", ["rpm:4/min"], name="keys")
    assert session.get_limits("key/1")["source"] == "entity-default"
    session.delete_entity("org", children=True)
    assert seen.told() == [
        ("SET_SYSTEM_DEFAULTS", "system", False),
        ("GET_SYSTEM_DEFAULTS", "system", False),
        ("DELETE_SYSTEM_DEFAULTS", "system", False),
        ("SET_RESOURCE_DEFAULTS", "openai/gpt-4o", False),
        ("GET_RESOURCE_DEFAULTS", "openai/gpt-4o", False),
        ("LIST_RESOURCES_WITH_DEFAULTS", "system", False),
        ("DELETE_RESOURCE_DEFAULTS", "openai/gpt-4o", False),
        ("CREATE_ENTITY", "org", False),
        ("CREATE_ENTITY", "key/1", False),
        ("GET_ENTITY", "key/1", False),
        ("GET_CHILDREN", "org", False),
        ("SET_LIMITS", "key/1", False),
        ("GET_LIMITS", "key/1", False),
        ("DELETE_LIMITS", "key/1", False),
        ("SET_LIMITS", "keys", False),
        ("GET_LIMITS", "key/1", False),
        ("DELETE_ENTITY", "org", False),
    ]


def test_what_is_there_already_is_a_failure_unless_it_may(connect: Connect) -> None:
    session, seen = connect()
    session.create_entity("a")
    assert session.create_entity("a", exist_ok=True) is None
    with pytest.raises(WeirError, match="409 exists"):
        session.create_entity("a")
    session.delete_entity("a")
    session.delete_entity("a", missing_ok=True)
    with pytest.raises(WeirError, match="404 not-found"):
        session.delete_entity("a")
    assert [failed for _, _, failed in seen.told()] == [False, False, True, False, False, True]


def test_lists_are_read_to_the_end(connect: Connect) -> None:
    session, seen = connect()
    session.create_entity("org")
    for n in range(5):
        session.create_entity(f"key-{n}", parent="org")
    seen.clear()
    call, pages = session.call, []

    def two_a_page(*args: object, **options: object) -> object:
        options["query"] = {**options["query"], "max": "2"}  # type: ignore[dict-item]
        pages.append(options["query"])
        return call(*args, **options)  # type: ignore[arg-type]

    session.call = two_a_page  # type: ignore[method-assign, assignment]
    assert [e["id"] for e in session.get_children("org")] == [f"key-{n}" for n in range(5)]
    assert seen.told() == [("GET_CHILDREN", "org", False)] * 3
    assert "after" not in pages[0]
    assert pages[1]["after"] != pages[2]["after"]
