"""Waiting for one record that a function accepts. Nothing is committed here: the sensor commits what it was told."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from logyard.admin.cluster.identity import led_elsewhere
from logyard.admin.errors import LogyardError
from logyard.admin.settings import BadSettings
from logyard.operators.callables import called
from logyard.operators.hooks.records import RecordsFailed, RecordsHook, cluster_of, library, refusal
from logyard.operators.reading import OUT_OF_RANGE, first_of_new, log_of
from logyard.operators.triggers.base import DONE, FAILED, TIMEOUT, WaitEvent, WaitFailed, constructor_fields, settle_s
from logyard.operators.triggers.cluster import some
from logyard.operators.triggers.watch import REREAD_S

_log = logging.getLogger(__name__)
T = TypeVar("T")

_BATCH = 100
_POLL_S = 0.2
_ASK_S = 5.0
# How often the topics are asked for partitions that they did not have before.
PARTITIONS_S = 60.0


class AwaitRecordTrigger(BaseTrigger):
    """Read from given offsets until `apply_function` accepts a record.

    A trigger that is started again reads from the same offsets, so no record is missed, and a function may see records
    again. What retention has deleted by then is left out. Where the connection is edited meanwhile, it reads on by the
    new one, once that is of use; the wait fails if it leads to another cluster, where the offsets are of other records.
    The event's `values`: {"record": {"topic", "partition", "offset", "timestamp_ms", "key", "value"}, "result": what
    the function returned, "offsets": "topic-partition" → the next offset to read}.

    :param logyard_conn_id: the connection.
    :param offsets: "topic-partition" → the first offset to read.
    :param cluster_id: the cluster that the offsets are of; empty: the one that is read first.
    :param apply_function: the dotted path of a function of one `confluent_kafka.Message`: a value that is true accepts
        the record. It must be what JSON has, or the wait fails. None: the first record.
    :param whole_topics: read the partitions too that the topics get meanwhile, each from its first record.
    :param patterns: expressions (`^…`): with `whole_topics` the topics that they mean and that are made meanwhile are
        read too.
    :param poll_interval_s: seconds between two looks when nothing came.
    :param deadline_ms: when the wait ends, in ms since 1970.
    """

    def __init__(
        self,
        *,
        logyard_conn_id: str,
        offsets: Mapping[str, int],
        cluster_id: str = "",
        apply_function: str | None = None,
        apply_function_args: Sequence[Any] | None = None,
        apply_function_kwargs: Mapping[str, Any] | None = None,
        client_options: Mapping[str, Any] | None = None,
        whole_topics: bool = False,
        patterns: Sequence[str] = (),
        poll_interval_s: float = 2.0,
        deadline_ms: int,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.logyard_conn_id = logyard_conn_id
        self.offsets = offsets
        self.cluster_id = cluster_id
        self.apply_function = apply_function
        self.apply_function_args = apply_function_args
        self.apply_function_kwargs = apply_function_kwargs
        self.client_options = client_options
        self.whole_topics = whole_topics
        self.patterns = list(patterns)
        self.poll_interval_s = poll_interval_s
        self.deadline_ms = deadline_ms

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = constructor_fields(type(self))
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        started = asyncio.get_running_loop().time()
        found = await self.outcome()
        await asyncio.sleep(max(started + settle_s() - asyncio.get_running_loop().time(), 0.0))
        yield TriggerEvent(found.as_json())  # type: ignore[no-untyped-call]

    async def outcome(self) -> WaitEvent:
        """How the wait ends; a worker asks for it here, since it need not wait for another process (`settle_s`)."""
        try:
            return await self._awaited()
        except LogyardError as problem:
            return WaitEvent(FAILED, str(problem))

    async def _awaited(self) -> WaitEvent:
        clock = asyncio.get_running_loop().time
        # The wall clock is read once: setting it during the wait neither ends nor prolongs the wait.
        deadline = clock() + self.deadline_ms / 1000 - time.time()
        positions, asked_at = dict(self.offsets), clock()
        link = _Link(self._connected, self.client_options, self.cluster_id)
        try:
            while True:
                reading, messages = await link.reading(positions, clock()), []
                if reading is not None and self.whole_topics and clock() - asked_at >= PARTITIONS_S:
                    await reading.run(reading.widen, positions, self.patterns)
                    asked_at = clock()
                if reading is not None:
                    messages = await reading.run(reading.consumer.consume, _BATCH, _POLL_S)
                    values = await reading.run(self._accepted, reading, messages, positions)
                    if values is not None:
                        return WaitEvent(DONE, values={**values, "offsets": positions})
                if clock() >= deadline:
                    unread = f" ({link.problem})" if link.problem else ""
                    return WaitEvent(TIMEOUT, f"no record was accepted in {some(sorted(positions))}{unread}")
                if not messages:
                    await asyncio.sleep(self.poll_interval_s)
        finally:
            link.end()

    async def _connected(self) -> tuple[RecordsHook, Any]:
        """The connection as it is now, and its settings. Raises LogyardError if it is of no use, else Airflow's."""
        hook = RecordsHook(self.logyard_conn_id)
        return hook, await hook.asettings()

    def _accepted(
        self, reading: "_Reading", messages: Sequence[Any], positions: dict[str, int]
    ) -> dict[str, Any] | None:
        """The first record that is accepted; moves `positions` behind all that were looked at."""
        accept, lost = None, []
        if self.apply_function is not None:
            args, kwargs = self.apply_function_args, self.apply_function_kwargs
            accept = called("apply_function", self.apply_function, args, kwargs)
        for message in messages:
            name = f"{message.topic()}-{message.partition()}"
            error = message.error()
            if error is not None:
                if error.code() == library().KafkaError._PARTITION_EOF:
                    continue
                if error.name() not in OUT_OF_RANGE:
                    raise refusal(name, error)
                lost.append((name, error))
                continue
            result = True if accept is None else accept(message)
            positions[name] = message.offset() + 1
            if result:
                return {"record": as_json(message), "result": _json_of(result, message)}
        for name, error in lost:
            if not reading.skips_deleted(name, positions):
                raise refusal(name, error)
        return None


class _Link:
    """What is read by the connection as it is now: it may be edited during a wait of days, and a secrets backend may be
    away for a while. `problem`: why nothing could be read, the last time."""

    def __init__(
        self,
        connected: Callable[[], Awaitable[tuple[RecordsHook, Any]]],
        options: Mapping[str, Any] | None,
        cluster_id: str,
    ) -> None:
        self._connected, self._options, self._cluster_id = connected, options, cluster_id
        self._reading: _Reading | None = None
        self._settings: Any = None
        self._read_at = float("-inf")
        self.problem = ""

    async def reading(self, positions: Mapping[str, int], now: float) -> "_Reading | None":
        """A consumer of the connection, at these positions if it is a new one; None: nobody could read it yet, or its
        cluster has not answered yet.

        Raises LogyardError: WaitFailed where it leads to another cluster.
        """
        reading = await self._opened(positions, now)
        if reading is None or reading.is_checked or not positions:
            return reading
        try:
            found = await reading.run(reading.cluster, positions)
        except RecordsFailed as problem:
            self.problem = str(problem)
            return None
        if edited := led_elsewhere(self._cluster_id, found, "when this wait began"):
            raise WaitFailed(f"{edited}, where the offsets that were reached are of other records")
        self.problem, self._cluster_id, reading.is_checked = "", self._cluster_id or found, True
        return reading

    async def _opened(self, positions: Mapping[str, int], now: float) -> "_Reading | None":
        if self._reading is not None and now - self._read_at < REREAD_S:
            return self._reading
        self._read_at = now
        try:
            hook, settings = await self._connected()
            self.problem = ""
        except Exception as problem:
            if self._reading is None and isinstance(problem, LogyardError):
                raise  # it was read, and is of no use
            self.problem = f"the connection cannot be read: {problem}"
            _log.warning("%s; %s", self.problem, "its last settings stay in use" if self._reading else "waiting on")
            return self._reading
        if self._reading is None or settings != self._settings:
            made = _Reading(hook, self._options)
            try:
                await made.run(made.begin, positions)
            except BaseException as problem:
                made.end()
                if self._reading is None or not isinstance(problem, LogyardError):
                    raise
                self.problem = f"the connection is of no use now: {problem}"
                _log.warning("%s; its last settings stay in use", self.problem)
                return self._reading
            self.end()
            self._settings, self._reading = settings, made
        return self._reading

    def end(self) -> None:
        if self._reading is not None:
            self._reading.end()
        self._reading = None


class _Reading:
    """A consumer and the thread that it runs in, which is no other trigger's: a cluster that does not answer, or a
    function that takes long, holds up nobody else of the triggerer. `is_checked`: whether the cluster is the right one.
    """

    def __init__(self, hook: RecordsHook, options: Mapping[str, Any] | None) -> None:
        self._hook, self._options = hook, options
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="logyard-records")
        self.consumer: Any = None
        self.is_checked = False

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        call = copy_context().run
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, work, *args)

    def begin(self, positions: Mapping[str, int]) -> None:
        self.consumer = self._hook.consumer("logyard", self._options)
        self._assign(positions)

    def _assign(self, positions: Mapping[str, int]) -> None:
        self.consumer.assign([_partition(name, offset) for name, offset in positions.items()])

    def skips_deleted(self, name: str, positions: dict[str, int]) -> bool:
        """Whether a position that the log does not have is read on: at the first record, where those before it were
        deleted, or again, where nobody tells now."""
        try:
            first, _ = log_of(self.consumer, _partition(name, 0), _ASK_S)
        except LogyardError as problem:
            _log.info("%s: what is left of its log is not known now: %s", name, problem)
        else:
            if positions[name] >= first:
                return False
            _log.warning("%s: the records from %d to %d were deleted, and are not read", name, positions[name], first)
            positions[name] = first
        self._assign(positions)
        return True

    def widen(self, positions: dict[str, int], patterns: Sequence[str]) -> None:
        """Read the partitions too that the topics have got since, and the topics that are meant and were made since, as
        far as brokers tell them now; adds them to `positions`."""
        try:
            added = first_of_new(self.consumer, positions, _ASK_S, patterns)
        except LogyardError as problem:
            _log.info("whether the topics have new partitions is not known now: %s", problem)
            return
        if added:
            _log.info("%s: new, and read from the first record", ", ".join(added))
            positions |= added
            self._assign(positions)

    def cluster(self, positions: Mapping[str, int]) -> str:
        """The id of the cluster; empty: it has none. Raises ApiError, RecordsFailed."""
        topic = next(iter(positions)).rpartition("-")[0]
        return cluster_of(self.consumer, topic, _ASK_S) or ""

    def end(self) -> None:
        """Not awaited: a trigger that is cancelled must not wait, and closing may take seconds."""
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    def _close(self) -> None:
        if self.consumer is not None:
            self.consumer.close()


def as_json(message: Any) -> dict[str, Any]:
    """A message as JSON has it: key and value as text, with bytes that are no UTF-8 replaced, and NUL, which PostgreSQL
    takes in no JSON (jsonb, as Airflow keeps XComs)."""
    key, value = (None if raw is None else _text_of(raw) for raw in (message.key(), message.value()))
    kind, timestamp = message.timestamp()
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": timestamp if kind else None,
        "key": key,
        "value": value,
    }


def _text_of(raw: bytes) -> str:
    return raw.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")


def _json_of(result: Any, message: Any) -> Any:
    """What a function returned, by way of JSON: Airflow fails a task, or ends all triggers, by an event that it cannot
    encode. Raises BadSettings."""
    try:
        text = json.dumps(result, allow_nan=False, ensure_ascii=False)
        text.encode()
        return json.loads(text, parse_int=_integer)
    except (TypeError, ValueError, RecursionError) as problem:
        raise BadSettings(
            f"apply_function returned a {type(result).__name__} for {message.topic()}-{message.partition()}, offset "
            f"{message.offset()}, that JSON does not have ({problem}): return text, finite numbers, lists or mappings "
            "of them, or True"
        ) from None


def _integer(digits: str) -> int:
    if not -(2**63) <= (number := int(digits)) < 2**64:
        raise ValueError("an integer of more than 64 bits")
    return number


def _partition(name: str, offset: int) -> Any:
    topic, _, partition = name.rpartition("-")
    return library().TopicPartition(topic, int(partition), offset)
