"""What is raised when weir does not answer, or says no for another reason than a limit."""

from __future__ import annotations

from locust.exception import RescheduleTask

from .transport import Answer


class WeirError(RescheduleTask):
    """A request that failed. Its event was fired as a failure before this is raised.

    It is a RescheduleTask, so that a task which does not catch it ends there, and its user waits and goes on.
    """

    kind: str
    """The last part of the problem's type, such as "no-limits" or "overloaded"; "connection" without an answer."""
    status: int
    """The HTTP status; 0 without an answer."""
    retry_after: float | None
    """Seconds until it makes sense to try again; None if the server did not say."""

    def __init__(self, what: str, answer: Answer) -> None:
        said = answer.said()
        self.status = answer.status
        self.retry_after = answer.wait()
        if answer.error is not None:
            self.kind, detail = "connection", f"{type(answer.error).__name__}: {answer.error}"
        else:
            self.kind = str(said.get("type", "")).rpartition("#")[2] or "malformed"
            detail = f"{answer.status} {self.kind}: {said.get('detail') or 'the answer is not one of weir'}"
        super().__init__(f"{what}: {detail}")
