"""Fetch: read from many partitions at once, or wait until there is enough (facts §10, §15).

Rule 1: a fetch is answered at once if it does not want to wait, has enough bytes, or met an error, a divergence or a
preferred replica; otherwise it waits for its partitions (or its session) to change, and then reads again.
Rule 2: only the first reading of a follower's fetch is recorded as the follower's progress.
Rule 3: a slice that is not in the page cache is loaded in a thread; if leadership changed meanwhile, the loaded bytes
are dropped, because other records may be at those positions by then.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, cast

from logyard.broker.errors import ErrorCode
from logyard.broker.event_loop import Pending
from logyard.broker.model import TopicPartition
from logyard.broker.replication.events import FetchedPartition, FetchParams, PartitionFetch, Records
from logyard.broker.replication.fetch.reader import Reading, is_throttled, must_wait, view_end
from logyard.broker.replication.hosted import Hosted
from logyard.broker.replication.isr import Heartbeat
from logyard.broker.replication.log_errors import code_of
from logyard.broker.replication.partition import Partition
from logyard.broker.replication.ports import Slice
from logyard.broker.replication.purgatory import Delayed

Fetched = list[FetchedPartition]
Found = tuple[FetchedPartition, Slice, Partition, int]
"""A partition's answer, the records for it, and whose they were: the leader epoch of the reading."""


class Hurry(NamedTuple):
    """The key by which every waiting session of one follower can be answered at once."""

    follower: int


class FetchSource(Protocol):
    """The partitions that a fetch has to read. A session names only those that may have news."""

    @property
    def heartbeat(self) -> Heartbeat | None:
        """The heartbeat of all partitions of a session that are not read."""
        ...

    def candidates(self) -> Iterable[PartitionFetch]:
        """The partitions to read now, in order."""
        ...

    def refusals(self) -> Iterable[FetchedPartition]:
        """The answers for what `candidates` has just left out: unknown topic ids, topics that the reader may not
        read."""
        ...

    def keys(self) -> Iterable[Hashable]:
        """The keys to wait for."""
        ...

    def touched(self, key: Hashable) -> PartitionFetch | None:
        """Return the partition that a `check` of `key` concerns; None if it is no longer asked for."""
        ...


class Sessionless:
    """All partitions of the request, each time."""

    __slots__ = ("_asks", "_by_partition", "_refusals")

    heartbeat = None

    def __init__(self, asks: Sequence[PartitionFetch], refusals: Sequence[FetchedPartition] = ()) -> None:
        self._asks = asks
        self._refusals = refusals
        self._by_partition: dict[Hashable, PartitionFetch] = {}

    def candidates(self) -> Iterable[PartitionFetch]:
        return self._asks

    def refusals(self) -> Iterable[FetchedPartition]:
        return self._refusals

    def keys(self) -> Iterable[Hashable]:
        self._by_partition = {ask.tp: ask for ask in self._asks}
        return self._by_partition

    def touched(self, key: Hashable) -> PartitionFetch | None:
        return self._by_partition.get(key)


class DelayedFetch(Delayed):
    """A fetch that waits for `min_bytes`, a change of leadership, or its time limit."""

    __slots__ = ("_available", "_fetching", "_params", "_pending", "_source")

    def __init__(
        self, fetching: "Fetching", params: FetchParams, source: FetchSource, pending: Pending[Fetched]
    ) -> None:
        super().__init__()
        self._fetching = fetching
        self._params = params
        self._source = source
        self._pending = pending
        self._available: dict[TopicPartition, int] = {}

    def is_ready(self, key: Hashable | None) -> bool:
        if key is None:
            return False  # the first reading has just found too little
        if isinstance(key, Hurry):
            return True
        ask = self._source.touched(key)
        if ask is None:
            return False
        available = self._fetching.available(self._params, ask)
        if available is None:
            return True
        self._available[ask.tp] = available
        return available > 0 and sum(self._available.values()) >= self._params.min_bytes

    def answer(self, *, expired: bool) -> None:
        if expired or self._params.replica_id < 0:
            self._answer()
        else:
            self._fetching.next_turn(self._answer)

    def _answer(self) -> None:
        if not self._pending.done():
            self._fetching.answer_late(self._params, self._source, self._pending)


class Fetching:
    """Fetch requests: answered at once, or when there is enough to read or the time is over."""

    def __init__(self, hosted: Hosted) -> None:
        self._hosted = hosted

    def fetch(self, params: FetchParams, source: FetchSource) -> Fetched | Pending[Fetched]:
        """Read the partitions of `source`, and add the answers that need no reading.

        Returns a Pending if it has to wait for data or for a disk. Errors per partition: OFFSET_OUT_OF_RANGE,
        UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, FENCED_LEADER_EPOCH,
        UNKNOWN_LEADER_EPOCH, INCONSISTENT_TOPIC_ID.
        """
        reading = self._read(params, source, record=True)
        if source.heartbeat is not None:
            # Only after the reading: partitions that this request forgot, or that failed, were not fetched by it.
            source.heartbeat.last_fetch_ms = self._hosted.now_ms()
        for partition in reading.moved:
            self._hosted.watermark_moved(partition)
        if reading.urgent or params.max_wait_ms <= 0 or reading.size >= params.min_bytes:
            return self._load(reading, None, in_files=params.in_files)
        pending: Pending[Fetched] = self._hosted.new_pending()
        operation = DelayedFetch(self, params, source, pending)
        keys = source.keys()
        self._hosted.fetches.try_complete_else_watch(operation, keys, params.max_wait_ms)
        return pending

    def _read(self, params: FetchParams, source: FetchSource, *, record: bool) -> Reading:
        reading = Reading(self._hosted, params, source.heartbeat, record=record)
        reading.read(source.candidates())
        for refusal in source.refusals():
            reading.refuse(refusal)
        return reading

    def hurry(self, followers: Iterable[int]) -> None:
        """Answer these followers' waiting sessions now, so that they can ask for partitions that they have just got."""
        for follower in followers:
            self._hosted.fetches.check(Hurry(follower))

    def available(self, params: FetchParams, ask: PartitionFetch) -> int | None:
        """Return how many bytes a waiting fetch would get from one partition; None to answer at once, as something
        changed."""
        hosted = self._hosted
        try:
            partition = hosted.partitions.get(ask.tp) or hosted.find(ask.tp)
            log = partition.readable_log(ask.leader_epoch, params.only_leader)
            limit = view_end(params, log)
            if limit == ask.offset:
                return 0
            if limit < ask.offset:
                # A consumer may be above the high watermark for a while; if it is above the log's end, the log was
                # truncated.
                return None if ask.offset > log.log_end_offset else 0
            if (
                params.replica_id >= 0
                and is_throttled(hosted, partition, log)
                and must_wait(hosted, partition, params.replica_id, hosted.now_ms())
            ):
                return 0
            if params.min_bytes <= 1:
                return 1
            return log.read(ask.offset, ask.max_bytes, limit_offset=limit, min_one=True).size
        except Exception:
            # The caller must not fail; the reading for the answer reports the error.
            return None

    def next_turn(self, work: Callable[[], None]) -> None:
        """Do `work` in the next turn of the event loop: a follower then gets all that this turn appends."""
        self._hosted.timers.call_later(0, work)

    def answer_late(self, params: FetchParams, source: FetchSource, pending: Pending[Fetched]) -> None:
        """Read again for a fetch that has waited, and answer it."""
        self._load(self._read(params, source, record=False), pending, in_files=params.in_files)

    def _load(
        self, reading: Reading, pending: Pending[Fetched] | None, *, in_files: bool
    ) -> Fetched | Pending[Fetched]:
        """Fill in the records: at once if they are in memory, else when the blocking reads are done."""
        cold = _fill(reading.slices, in_files=in_files)
        if cold and in_files:
            # When the disk has answered, the others may be in their files or in memory no longer: read them now.
            cold = _fill(reading.slices, in_files=False)
        self._hosted.counters.bytes_out += reading.size
        if cold:
            waiting = pending if pending is not None else self._hosted.new_pending()
            ColdReads(self._hosted, reading.results, cold, waiting).start()
            return waiting
        if pending is not None:
            pending.set_result(reading.results)
            return pending
        return reading.results


def _fill(slices: list[Found], *, in_files: bool) -> list[Found]:
    """Fill in the records that are in memory, or where they are in their files; returns the slices that are not."""
    cold = []
    for each in slices:
        result, found, _, _ = each
        try:
            part = found.in_file() if in_files else None
            # What encodes the answer asks a part for its length only, as it does for all large records.
            records = found.load_nowait() if part is None else cast(Records, part)
            if records is None:
                cold.append(each)
            else:
                result.records = records
                if result.aborted is not None:
                    _name_aborted(result, found)
        except Exception as error:
            _fail(result, error)
    return cold


class ColdReads:
    """The slices of one fetch that have to be read from the disk; the fetch is answered after the last one."""

    __slots__ = ("_cold", "_hosted", "_left", "_pending", "_results")

    def __init__(
        self,
        hosted: Hosted,
        results: Fetched,
        cold: list[Found],
        pending: Pending[Fetched],
    ) -> None:
        self._hosted = hosted
        self._results = results
        self._cold = cold
        self._pending = pending
        self._left = len(cold)

    def start(self) -> None:
        """Hand every slice to the reader pool."""
        self._hosted.counters.cold_reads += len(self._cold)
        for result, found, partition, epoch in self._cold:
            self._load(result, found, partition, epoch)

    def _load(self, result: FetchedPartition, found: Slice, partition: Partition, epoch: int) -> None:
        log, size = partition.log, found.size
        self._hosted.loading(size)

        def loaded(read: Pending[Any]) -> None:
            self._hosted.loading(-size)
            try:
                result.records = read.result()
                _name_aborted(result, found)
            except Exception as error:
                # Whatever the error, the fetch must not wait for ever.
                _fail(result, error)
            if partition.log is not log or partition.leader_epoch != epoch:
                result.records = b""
                result.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            self._left -= 1
            if self._left == 0 and not self._pending.done():
                self._pending.set_result(self._results)

        self._hosted.run_blocking(found.load).add_done_callback(loaded)


def _name_aborted(result: FetchedPartition, found: Slice) -> None:
    """For a reader of committed records: which of the loaded ones were aborted; none are shown where that is gone."""
    if result.aborted is not None and len(result.records):
        aborted = found.aborted()
        if aborted is None:
            result.records = b""
        else:
            result.aborted = [(each.producer_id, each.first_offset) for each in aborted]


def _fail(result: FetchedPartition, error: Exception) -> None:
    result.error = code_of(error, result.tp)
    result.records = b""
    result.high_watermark = result.last_stable_offset = result.log_start_offset = -1
