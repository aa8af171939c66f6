"""The base of all triggers: `serialize()` and the polling loop. A subclass is a constructor and one `look`."""

import asyncio
import inspect
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from logyard.admin.cluster.identity import led_elsewhere
from logyard.admin.cluster.observation import Observation, Wanted
from logyard.admin.errors import LogyardError
from logyard.admin.ports import DescribingClient
from logyard.admin.settings import ClusterSettings
from logyard.operators.airflow_names import conf
from logyard.operators.hooks.cluster import ClusterHook
from logyard.operators.triggers.watch import ClusterWatch

DONE, FAILED, TIMEOUT = "done", "failed", "timeout"

_MARGIN_S_MIN = 1.0
REPORT_S = 30.0
# The first report comes sooner: a rate needs two, and many waits are over within a minute.
FIRST_REPORT_S = 5.0
# A report that gets no answer must not hold up what waits.
_BRIEF_S = 5.0


class WaitFailed(LogyardError):
    """The condition cannot become true any more, or did not in time."""


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
        """The values of a wait that succeeded. Raises WaitFailed with the trigger's message."""
        if event is None:
            raise WaitFailed("the trigger sent no event")
        if event.get("status") != DONE:
            raise WaitFailed(str(event.get("message") or event.get("status")))
        return dict(event.get("values") or {})


def constructor_fields(made: type) -> list[str]:
    """The names of the keyword-only arguments of a class and its bases."""
    names: dict[str, None] = {}
    for above in made.__mro__:
        if above is BaseTrigger:
            break
        if "__init__" in vars(above):
            parameters = inspect.signature(vars(above)["__init__"]).parameters.values()
            names |= {p.name: None for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
    return list(names)


def settle_s() -> float:
    """For how many seconds a trigger delays its first event.

    A worker notices the end of its task's process only at its next heartbeat. If the task is resumed before that, the
    scheduler sees the end of the first part after it queued the second part, and concludes that the task was killed
    from outside (docs/decisions/0015). So no event is sent sooner than two heartbeats after the trigger began: one for
    the worker, one for the scheduler.
    """
    interval = conf.getfloat("workers", "min_heartbeat_interval", fallback=5.0)
    return interval + max(interval, _MARGIN_S_MIN) if interval > 0 else 0.0


class ClusterTrigger(BaseTrigger):
    """Wait until `look` returns a result for an observation of the cluster.

    A subclass's constructor takes keyword arguments only, stores each under its own name (`serialize` reads them back)
    and passes the rest, `**waiting`, on.

    :param logyard_conn_id: the connection.
    :param poll_interval_s: seconds between two reads of the cluster.
    :param deadline_ms: when the wait fails, in ms since 1970.
    :param cluster_id: the cluster that the wait is about; empty: whichever the connection leads to. Where the
        connection was edited, another cluster's answer says nothing: the wait fails.
    """

    reports: ClassVar[bool] = False
    """Whether `report` has something to tell."""

    def __init__(self, *, logyard_conn_id: str, poll_interval_s: float, deadline_ms: int, cluster_id: str = "") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.logyard_conn_id = logyard_conn_id
        self.poll_interval_s = poll_interval_s
        self.deadline_ms = deadline_ms
        self.cluster_id = cluster_id

    def result(self, seen: Observation) -> dict[str, Any] | None:
        """What `look` finds, if the observation is of the wait's cluster. Raises WaitFailed."""
        if edited := led_elsewhere(self.cluster_id, seen.snapshot.cluster_id, "when this was begun"):
            raise WaitFailed(f"{edited}: how it ended there, is not known")
        return self.look(seen)

    @abstractmethod
    def look(self, seen: Observation) -> dict[str, Any] | None:
        """The result, or None to keep waiting. Raises WaitFailed if the condition can no longer become true."""

    @abstractmethod
    def missing(self, seen: Observation) -> str:
        """What is still missing, in a few words."""

    def unseen(self) -> None:
        """The cluster did not answer, so nothing is known of now: what was to last has to last from the next look."""

    def report(self, client: DescribingClient, now_s: float) -> str | None:
        """How far it is, for the log after FIRST_REPORT_S and every REPORT_S; None: nothing to tell.

        May ask the cluster, within its time-outs; `now_s` is on a clock that never goes back.
        """
        return None

    def wants(self) -> Wanted:
        """What the observation must contain beside the snapshot."""
        return Wanted()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = constructor_fields(type(self))
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        started = asyncio.get_running_loop().time()
        payload = await self._outcome()
        await asyncio.sleep(max(started + settle_s() - asyncio.get_running_loop().time(), 0.0))
        waited_s = asyncio.get_running_loop().time() - started
        yield TriggerEvent({**payload.as_json(), "waited_s": waited_s})  # type: ignore[no-untyped-call]

    async def _outcome(self) -> WaitEvent:
        watch = ClusterWatch.of(self.logyard_conn_id)
        clock = asyncio.get_running_loop().time
        # The wall clock is read once: setting it during the wait neither ends nor prolongs the wait.
        deadline = clock() + self.deadline_ms / 1000 - time.time()
        said = ""
        report_at = clock() + FIRST_REPORT_S
        while True:
            seen = await watch.next_look(self.poll_interval_s, self.wants())
            if isinstance(seen, Exception):
                self.unseen()
                waiting_for = f"the cluster to answer ({seen})"
            else:
                try:
                    values = self.result(seen)
                except WaitFailed as problem:
                    return WaitEvent(FAILED, str(problem))
                if values is not None:
                    return WaitEvent(DONE, values=values)
                waiting_for = self.missing(seen)
            if waiting_for != said:
                self.log.info("waiting for %s", waiting_for)
                said = waiting_for
            if clock() >= deadline:
                return WaitEvent(TIMEOUT, f"gave up waiting for {waiting_for}")
            if self.reports and clock() >= report_at:
                await self._tell()
                report_at = clock() + REPORT_S

    async def _tell(self) -> None:
        """Log how far it is, read by a thread with a client of its own."""
        hook = ClusterHook(self.logyard_conn_id)

        def read(settings: ClusterSettings) -> str | None:
            brief = replace(settings, request_timeout_s=_BRIEF_S, total_timeout_s=_BRIEF_S)
            client = hook.connector.cluster(brief)
            try:
                return self.report(client, time.monotonic())
            finally:
                client.close()

        try:
            settings = await hook.asettings()
            text = await asyncio.get_running_loop().run_in_executor(None, read, settings)
        except Exception as problem:  # a line of the log: a secrets backend that is away now must not end the wait
            text = f"how far it is, is not known now ({problem})"
        if text:
            self.log.info(text)
