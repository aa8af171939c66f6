"""The fetchers of this broker, one per leader, and the retries of partitions that cannot be followed.

Rule 1: whatever a log raised, its partition is tried again: first after replica.fetch.backoff.ms, then less and less
often, but at least every minute, until the controller sends another request. It restarts from the end of its log.
Rule 2: a partition counts as failed (Kafka's FailedPartitionsCount) until an answer of its leader was used again. Only
a partition whose leader has a later epoch is not tried: the controller's request about that is on its way.
"""

from collections.abc import Callable, Iterable

import structlog

from logyard.broker.errors import StorageError
from logyard.broker.event_loop import TimerHandle, Timers
from logyard.broker.model import TopicPartition
from logyard.broker.replication.follower.fetcher import LeaderFetcher
from logyard.broker.replication.partition import Partition
from logyard.broker.replication.ports import FetchLinks
from logyard.broker.replication.settings import Counters, ReplicaSettings
from logyard.broker.replication.throttle import ByteRate

LONGEST_PAUSE_MS = 60_000

log = structlog.get_logger("logyard.fetcher")


class _Failed:
    """A partition that is not fetched, the number of failed tries in a row, and the timer of the next try."""

    __slots__ = ("partition", "timer", "tries")

    def __init__(self, partition: Partition, tries: int) -> None:
        self.partition = partition
        self.tries = tries
        self.timer: TimerHandle | None = None

    def cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class ReplicaFetchers:
    """A LeaderFetcher per leader (num.replica.fetchers=1). Implements `controller_requests.Fetchers`."""

    def __init__(
        self,
        links: FetchLinks,
        settings: ReplicaSettings,
        counters: Counters,
        now_ms: Callable[[], int],
        broker_epoch: Callable[[], int],
        progressed: Callable[[Partition], None],
        timers: Timers,
    ) -> None:
        self._timers = timers
        self._links = links
        self._settings = settings
        self._counters = counters
        self._now_ms = now_ms
        self._broker_epoch = broker_epoch
        self._progressed = progressed
        self._by_leader: dict[int, LeaderFetcher] = {}
        self._placed: dict[TopicPartition, int] = {}
        self._throttled_in = ByteRate(settings.throttle_windows, settings.throttle_window_ms)
        self.failed: dict[TopicPartition, _Failed] = {}

    def start(self, partitions: Iterable[Partition]) -> None:
        """Fetch these from their current leaders."""
        for partition in partitions:
            self._take_away(partition.tp)
            self._forget(partition.tp)
            self._begin(partition, on_trial=False)

    def _begin(self, partition: Partition, *, on_trial: bool) -> None:
        self._placed[partition.tp] = partition.leader
        try:
            self._fetcher(partition.leader).add(partition, on_trial=on_trial)
        except Exception as trouble:
            self._note_failed(partition, trouble)

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop fetching these; answers in flight are dropped."""
        for tp in partitions:
            self._take_away(tp)
            self._forget(tp)

    def refresh_topic_ids(self, partitions: Iterable[Partition]) -> None:
        """Fetch with (or without) the ids that these topics have now."""
        for partition in partitions:
            leader = self._placed.get(partition.tp)
            if leader is not None and leader in self._by_leader:
                self._by_leader[leader].refresh_topic_id(partition)

    async def close(self) -> None:
        """Stop all fetchers."""
        for tp in list(self.failed):
            self._forget(tp)
        for fetcher in self._by_leader.values():
            await fetcher.close()
        self._by_leader.clear()
        self._placed.clear()

    def _fetcher(self, leader: int) -> LeaderFetcher:
        fetcher = self._by_leader.get(leader)
        if fetcher is None:
            fetcher = self._by_leader[leader] = LeaderFetcher(
                leader,
                self._links(leader),
                self._settings,
                self._counters,
                self._now_ms,
                self._broker_epoch,
                self._progressed,
                self._recovered,
                self._note_failed,
                self._throttled_in,
            )
        return fetcher

    def _take_away(self, tp: TopicPartition) -> None:
        leader = self._placed.pop(tp, None)
        if leader is not None and leader in self._by_leader:
            self._by_leader[leader].remove(tp)

    @property
    def failed_count(self) -> int:
        """The number of partitions that are not followed because of their logs or their leaders' records."""
        return len(self.failed)

    def _note_failed(self, partition: Partition, trouble: Exception | None) -> None:
        tp = partition.tp
        self._placed.pop(tp, None)
        before = self.failed.get(tp)
        failed = self.failed[tp] = _Failed(partition, 0 if before is None else before.tries + 1)
        if trouble is None:
            return
        pause_s = min(self._settings.fetch_backoff_ms << min(failed.tries, 16), LONGEST_PAUSE_MS) / 1000
        failed.timer = self._timers.call_later(pause_s, lambda: self._try_again(failed))
        say = log.error if isinstance(trouble, StorageError) else log.exception
        say("cannot be followed now", partition=str(tp), error=str(trouble) or repr(trouble), again_in_s=pause_s)

    def _try_again(self, failed: _Failed) -> None:
        failed.timer = None
        if self.failed.get(failed.partition.tp) is failed:
            self._begin(failed.partition, on_trial=True)

    def _recovered(self, partition: Partition) -> None:
        if self.failed.pop(partition.tp, None) is not None:
            log.info("is followed again", partition=str(partition.tp), leader=partition.leader)

    def _forget(self, tp: TopicPartition) -> None:
        failed = self.failed.pop(tp, None)
        if failed is not None:
            failed.cancel()
