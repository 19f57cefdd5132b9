"""The error raised if weir does not answer, or refuses for a reason other than a limit."""

from __future__ import annotations

from locust.exception import RescheduleTask

from .transport import Answer


class WeirError(RescheduleTask):
    """A failed request. Its event has been fired as a failure before this is raised.

    It is a RescheduleTask: if a task does not catch it, the task ends there, and its user waits and goes on.
    """

    kind: str
    """The last part of the problem's type, such as "no-limits" or "overloaded"; "connection" if there was no answer."""
    status: int
    """The HTTP status; 0 if there was no answer."""
    retry_after: float | None
    """Seconds to wait before a retry; None if the server did not say."""

    lease: str | None
    """The new id of a lease whose adjustment was made in part: kind "max-debt". The lease uses it by itself."""

    def __init__(self, what: str, answer: Answer) -> None:
        said = answer.said()
        self.lease = said.get("lease")
        self.status = answer.status
        self.retry_after = answer.wait()
        if answer.error is not None:
            self.kind, detail = "connection", f"{type(answer.error).__name__}: {answer.error}"
        else:
            self.kind = str(said.get("type", "")).rpartition("#")[2] or "malformed"
            detail = f"{answer.status} {self.kind}: {said.get('detail') or 'the answer is not one of weir'}"
        super().__init__(f"{what}: {detail}")
