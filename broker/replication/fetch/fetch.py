"""Fetch: read from many partitions at once, or wait until there is enough (facts §10, §15).

Rule 1: a fetch is answered at once if it does not want to wait, has enough bytes, or met an error, a divergence or a
preferred replica; otherwise it waits for its partitions (or its session) to change, and then reads again.
Rule 2: only the first reading of a follower's fetch is recorded as the follower's progress.
Rule 3: a slice that is not in the page cache is for a thread (cold_reads.py); if leadership changed meanwhile, its
records are dropped, because others may be at those positions by then.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, Protocol

from logyard.broker.event_loop import Pending
from logyard.broker.model import TopicPartition
from logyard.broker.replication.events import FetchedPartition, FetchParams, PartitionFetch
from logyard.broker.replication.fetch import filling
from logyard.broker.replication.fetch.cold_reads import ColdReads
from logyard.broker.replication.fetch.reader import Reading, is_throttled, must_wait, view_end
from logyard.broker.replication.hosted import Hosted
from logyard.broker.replication.isr import Heartbeat
from logyard.broker.replication.purgatory import Delayed

Fetched = list[FetchedPartition]


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

    __slots__ = ("_available", "_fetching", "_params", "_pending", "_source", "_total")

    def __init__(
        self,
        fetching: "Fetching",
        params: FetchParams,
        source: FetchSource,
        pending: Pending[Fetched],
        available: dict[TopicPartition, int],
    ) -> None:
        """`available`: how many bytes of each partition the first reading has found."""
        super().__init__()
        self._fetching = fetching
        self._params = params
        self._source = source
        self._pending = pending
        self._available = available
        self._total = sum(available.values())

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
        self._total += available - self._available.get(ask.tp, 0)
        self._available[ask.tp] = available
        return available > 0 and self._total >= self._params.min_bytes

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
        available = {result.tp: found.size for result, found, _, _ in reading.slices}
        operation = DelayedFetch(self, params, source, pending, available)
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
        cold = filling.fill(reading.slices, in_files=in_files)
        self._hosted.counters.bytes_out += reading.size
        if cold:
            waiting = pending if pending is not None else self._hosted.new_pending()
            # What is sent from files is found again when the disk has answered.
            reads = ColdReads(self._hosted, reading.results, reading.slices if in_files else cold, waiting)
            self._hosted.counters.cold_reads += len(cold)
            (reads.warm if in_files else reads.load)(cold)
            return waiting
        if pending is not None:
            pending.set_result(reading.results)
            return pending
        return reading.results
