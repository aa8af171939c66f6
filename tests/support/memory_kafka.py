"""A cluster with transactions in memory, for the tests of the Spark sink: fencing, atomic commits, kills."""

from collections.abc import Callable, Mapping, Sequence

from logyard.spark_jobs.sink.errors import CannotWrite, Fenced
from logyard.spark_jobs.sink.rows import Rows


class Killed(Exception):
    """The process is gone: nothing of its clean-up is done."""


class MemoryKafka:
    """What is committed and which producer of each transactional id is the latest.

    `on_step` is called before and after every request, and may raise Killed; each task has a `session` of its own.
    """

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.offsets: dict[str, str] = {}
        self.producers: dict[str, object] = {}
        self.pending: dict[str, object] = {}

    def session(self, on_step: Callable[[str], None] = lambda step: None) -> "Session":
        return Session(self, on_step)


class Session:
    """One task's connections."""

    def __init__(self, kafka: MemoryKafka, on_step: Callable[[str], None]) -> None:
        self.kafka, self._on_step = kafka, on_step
        self.is_dead = False

    def step(self, name: str) -> None:
        if self.is_dead:
            raise Killed
        try:
            self._on_step(name)
        except Killed:
            self.is_dead = True
            raise

    def transactions(self, transactional_id: str) -> "MemoryTransactions":
        return MemoryTransactions(self, transactional_id)

    def check_topic(self, topic: str) -> int:
        return 1

    def committed(self, groups: Sequence[str]) -> Mapping[str, str | None]:
        self.step("before committed")
        return {group: self.kafka.offsets.get(group) for group in groups if group not in self.kafka.pending}

    def groups(self, prefix: str) -> list[str]:
        self.step("before groups")
        return [group for group in self.kafka.offsets if group.startswith(prefix)]


class MemoryTransactions:
    """A producer; the latest that started with its id fences the others."""

    def __init__(self, session: Session, transactional_id: str) -> None:
        self._session, self._id = session, transactional_id
        self._open: list[bytes] | None = None

    def start(self) -> None:
        self._session.step("before start")
        self._session.kafka.producers[self._id] = self
        self._session.kafka.pending.pop(self._id, None)
        self._session.step("after start")

    def _check(self) -> None:
        if self._session.kafka.producers.get(self._id) is not self:
            raise Fenced(f"{self._id}: a later attempt has begun")

    def begin(self) -> None:
        self._open = []

    def send(self, rows: Rows) -> None:
        self._session.step("before send")
        self._check()
        assert self._open is not None
        for value in rows.values:
            if value is None:
                raise CannotWrite("a record was refused")
            self._open.append(value)
        self._session.step("after send")

    def commit(self, group: str, epoch: int, metadata: str) -> None:
        self._session.step("before commit")
        self._check()
        assert group == self._id, "what ends an open transaction on a group is a producer of the same name"
        self._session.kafka.pending[group] = self
        self._session.step("after offsets")
        self._check()
        assert self._open is not None
        del self._session.kafka.pending[group]
        self._session.kafka.records += self._open
        self._session.kafka.offsets[group] = metadata
        self._open = None
        self._session.step("after commit")

    def close(self) -> None:
        pending = self._session.kafka.pending
        if not self._session.is_dead and pending.get(self._id) is self:
            del pending[self._id]
        self._open = None
