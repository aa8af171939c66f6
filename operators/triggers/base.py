"""The base of all triggers: it owns `serialize()` and the loop; a subclass is a constructor and one `look`."""

import inspect
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from logyard.admin.errors import LogyardError
from logyard.admin.snapshot import ClusterSnapshot
from logyard.operators.triggers.watch import ClusterWatch

DONE, FAILED, TIMEOUT = "done", "failed", "timeout"


class WaitFailed(LogyardError):
    """What was waited for cannot come any more, or did not come in time."""


@dataclass(frozen=True)
class WaitEvent:
    """How a wait ended; the payload of a trigger's event."""

    status: str
    message: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"status": self.status, "message": self.message, "values": dict(self.values)}

    @classmethod
    def from_event(cls, event: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the values of a wait that ended well. Raises WaitFailed with what the trigger reported."""
        if event is None:
            raise WaitFailed("the trigger sent no event")
        if event.get("status") != DONE:
            raise WaitFailed(str(event.get("message") or event.get("status")))
        return dict(event.get("values") or {})


class ClusterTrigger(BaseTrigger):
    """Wait until `look` is content with a snapshot of the cluster.

    A subclass's constructor takes keyword arguments only and stores each under its own name: that is what
    `serialize` reads back.

    :param logyard_conn_id: the connection.
    :param poll_interval_s: seconds between two looks at the cluster.
    :param deadline_ms: wall-clock milliseconds after which the wait has failed.
    """

    def __init__(self, *, logyard_conn_id: str, poll_interval_s: float, deadline_ms: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.logyard_conn_id = logyard_conn_id
        self.poll_interval_s = poll_interval_s
        self.deadline_ms = deadline_ms

    @abstractmethod
    def look(self, snapshot: ClusterSnapshot) -> dict[str, Any] | None:
        """Return the result when it is there, None to go on waiting. Raises WaitFailed when it cannot come."""

    @abstractmethod
    def missing(self, snapshot: ClusterSnapshot) -> str:
        """Say in a few words what is still waited for."""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = [name for name in inspect.signature(type(self).__init__).parameters if name != "self"]
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        watch = ClusterWatch.of(self.logyard_conn_id)
        said = ""
        while True:
            look = await watch.next_look(self.poll_interval_s)
            if isinstance(look, Exception):
                waiting_for = f"the cluster to answer ({look})"
            else:
                try:
                    values = self.look(look)
                except WaitFailed as problem:
                    yield _event(FAILED, str(problem))
                    return
                if values is not None:
                    yield _event(DONE, values=values)
                    return
                waiting_for = self.missing(look)
            if waiting_for != said:
                self.log.info("waiting for %s", waiting_for)
                said = waiting_for
            if time.time() * 1000 >= self.deadline_ms:
                yield _event(TIMEOUT, f"gave up waiting for {waiting_for}")
                return


def _event(status: str, message: str = "", values: Mapping[str, Any] | None = None) -> TriggerEvent:
    payload = WaitEvent(status, message, values or {}).as_json()
    return TriggerEvent(payload)  # type: ignore[no-untyped-call]
