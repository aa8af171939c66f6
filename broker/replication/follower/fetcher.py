"""The fetch loop: one task per leader broker, for all partitions that it leads and this broker replicates.

answers.py decides what an answer means, session.py what a request can omit, fetcher_manager.py what happens to
partitions that fail; this module waits, backs off, and loops. Everything except `LeaderFetcher._run` is synchronous, so
a partition is removed at once: an answer in flight finds no state and is dropped.

Rule: an error of one partition, whatever it is, affects only that partition: the others are fetched on.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog

from logyard.broker import tasks
from logyard.broker.errors import CorruptData, ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.replication.events import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    EpochQuery,
    FetchedPartition,
    FollowerFetch,
    FollowerFetchAnswer,
    OffsetAnswer,
    OffsetQuery,
    PartitionFetch,
)
from logyard.broker.replication.follower.answers import FetchOutcome, FetchState, fetch_state
from logyard.broker.replication.follower.portions import ONE_PORTION_BYTES, Turn, portions
from logyard.broker.replication.follower.session import FollowerSession
from logyard.broker.replication.partition import Partition
from logyard.broker.replication.ports import FetchLink, LinkError
from logyard.broker.replication.settings import Counters, ReplicaSettings
from logyard.broker.replication.throttle import UNLIMITED, ByteRate

THROTTLE_PAUSE_MS = 100

log = structlog.get_logger("logyard.fetcher")

Failed = Callable[[Partition, Exception | None], None]
"""Called for a partition that is no longer fetched, with the reason; None: its leader has a later epoch."""

_LINK_TROUBLE = (OSError, TimeoutError, LinkError, CorruptData, asyncio.TimeoutError)


class LeaderFetcher:
    """Everything that is fetched from one leader.

    `now_ms()` is monotonic. `progressed` is called for moved watermarks, `recovered` for the first answer used of a
    partition added `on_trial`, `failed` for partitions that are no longer fetched.
    """

    def __init__(
        self,
        leader: int,
        link: FetchLink,
        settings: ReplicaSettings,
        counters: Counters,
        now_ms: Callable[[], int],
        broker_epoch: Callable[[], int],
        progressed: Callable[[Partition], None],
        recovered: Callable[[Partition], None],
        failed: Failed,
        throttled_in: ByteRate,
    ) -> None:
        self.leader = leader
        self._link = link
        self._settings = settings
        self._counters = counters
        self._now_ms = now_ms
        self._broker_epoch = broker_epoch
        self._progressed = progressed
        self._recovered = recovered
        self._failed = failed
        self._throttled_in = throttled_in
        self._states: dict[TopicPartition, FetchState] = {}
        # Partitions whose parameters may differ from those in the session.
        self._changed: dict[TopicPartition, None] = {}
        self._delayed: dict[TopicPartition, None] = {}
        self._session = FollowerSession()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    # From outside, at any time

    def add(self, partition: Partition, *, on_trial: bool = False) -> None:
        """Fetch this partition too, from the end of its log; raises StorageError, and any other error of its log."""
        state = fetch_state(partition, truncates_on_fetch=self._settings.truncates_on_fetch)
        state.is_on_trial = on_trial
        self._states[partition.tp] = state
        self._changed[partition.tp] = None
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = tasks.keep(f"fetch from {self.leader}", self._run)

    def remove(self, tp: TopicPartition) -> None:
        """Stop fetching this partition."""
        if self._states.pop(tp, None) is not None:
            self._changed[tp] = None
            self._delayed.pop(tp, None)
            self._wake.set()

    def refresh_topic_id(self, partition: Partition) -> None:
        """The topic's id became known, or was removed."""
        state = self._states.get(partition.tp)
        if state is not None:
            state.topic_id = partition.topic_id
            self._changed[partition.tp] = None

    @property
    def partition_count(self) -> int:
        return len(self._states)

    def lags(self) -> dict[TopicPartition, int]:
        """Return the next offset to fetch of each partition."""
        return {tp: state.offset for tp, state in self._states.items()}

    async def close(self) -> None:
        """Stop, and drop the request in flight."""
        self._states.clear()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    # The loop

    async def _run(self) -> None:
        while self._states:
            try:
                await self._round()
            except _LINK_TROUBLE as trouble:
                log.info("the leader was not reached", leader=self.leader, error=f"{type(trouble).__name__}: {trouble}")
                self._session.failed()
                await self._sleep(self._settings.fetch_backoff_ms)
            except Exception:
                # A bug must not end replication: log it and start a new session.
                log.exception("fetching failed", leader=self.leader)
                self._session.failed()
                await self._sleep(self._settings.fetch_backoff_ms)

    async def _round(self) -> None:
        # With IBP 2.7-IV1 and above answers to fetches tell divergence, so the leader need not be asked for epochs.
        if not self._settings.truncates_on_fetch and any(state.truncating for state in self._states.values()):
            await self._truncate_by_epochs()
        request = self._question()
        if request is None:
            now = self._now_ms()
            due = min((s.due_ms - now for s in self._states.values()), default=0)
            await self._sleep(max(1, due))
            return
        answer = await self._link.fetch(request)
        if self._session.answered(answer):
            await self._take(answer)
        else:
            log.info("a new fetch session is opened", leader=self.leader, error=answer.error.name)

    async def _sleep(self, ms: int) -> None:
        """Wait for `ms`, or until a partition is added or removed."""
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ms / 1000):
                await self._wake.wait()

    def _question(self) -> FollowerFetch | None:
        """Return the next request, None if every partition has to wait."""
        now = self._now_ms()
        for tp in list(self._delayed):
            state = self._states.get(tp)
            if state is None or state.due_ms <= now:
                del self._delayed[tp]
                self._changed[tp] = None
        self._hold_back(now)
        session = self._session
        sending: Sequence[PartitionFetch] = ()
        forgotten: Sequence[tuple[TopicPartition, object]] = ()
        if not session.is_full:
            wanted, removed = [], []
            for tp in self._changed:
                state = self._states.get(tp)
                if state is None or tp in self._delayed or state.truncating:
                    removed.append(tp)
                else:
                    wanted.append(self._ask(state))
            sending, forgotten = session.change(wanted, removed)
            if session.mixes_kinds or not session.sent:
                session.failed()  # the next question opens a new session, which closes the old one
        if session.is_full:
            ready = [s for tp, s in self._states.items() if tp not in self._delayed and not s.truncating]
            sending, forgotten = [self._ask(s) for s in ready], ()
            session.open(sending)
        self._changed = {}
        return self._request(sending, forgotten) if session.sent else None

    def _hold_back(self, now: int) -> None:
        """Leave out throttled partitions that lag, while the rate is above the limit."""
        limit = self._settings.follower_throttled_rate
        if limit == UNLIMITED or self._throttled_in.per_second(now) <= limit:
            return
        for tp, state in self._states.items():
            if tp not in self._delayed and state.lag != 0 and state.is_throttled:
                state.due_ms = now + THROTTLE_PAUSE_MS
                self._delayed[tp] = None
                self._changed[tp] = None

    def _ask(self, state: FetchState) -> PartitionFetch:
        settings = self._settings
        return state.ask(
            settings.fetch_max_bytes,
            with_last_epoch=settings.truncates_on_fetch,
            with_topic_id=settings.uses_topic_ids,
        )

    def _request(
        self, sending: Sequence[PartitionFetch], forgotten: Sequence[tuple[TopicPartition, object]]
    ) -> FollowerFetch:
        settings, session = self._settings, self._session
        return FollowerFetch(
            replica_id=settings.broker_id,
            replica_epoch=self._broker_epoch(),
            max_wait_ms=settings.fetch_wait_max_ms,
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_response_max_bytes,
            session_id=session.id,
            session_epoch=session.epoch,
            partitions=sending,
            forgotten=forgotten,  # type: ignore[arg-type]
            uses_topic_ids=session.uses_topic_ids,
        )

    # Answers

    async def _take(self, answer: FollowerFetchAnswer) -> None:
        lost: list[FetchState] = []
        turn, states, sent = Turn(), self._states, self._session.sent
        for fetched in answer.partitions:
            size = len(fetched.records)
            if turn.is_over(size):
                await asyncio.sleep(0)
            tp = fetched.tp
            state, asked = states.get(tp), sent.get(tp)
            if state is None or asked is None or not state.answers(asked):
                continue
            outcome = None
            if size:
                self._counters.replication_bytes_in += size
                if state.is_throttled:
                    self._throttled_in.record(size, self._now_ms())
                if size > ONE_PORTION_BYTES:
                    *before, last = portions(fetched.records)
                    outcome = await self._take_before(state, asked, fetched, before)
                    fetched = replace(fetched, records=last)
            outcome = outcome or self._take_in(state, fetched)
            if state.asks_anew(asked, fetched, outcome):
                self._changed[tp] = None
            if outcome is FetchOutcome.PROGRESS:
                self._progressed(state.partition)
            elif outcome is not FetchOutcome.IDLE:
                self._act(state, outcome, lost)
        if lost:
            await self._find_again(lost)

    def _act(self, state: FetchState, outcome: FetchOutcome, lost: list[FetchState]) -> None:
        """Do what the outcome asks for; who has to look for its offset is added to `lost`."""
        match outcome:
            case FetchOutcome.TRUNCATED:
                log.info("diverged and cut", partition=str(state.partition.tp), leader=self.leader, end=state.offset)
            case FetchOutcome.BACK_OFF:
                self._say(state)
                self._delay(state)
            case FetchOutcome.OUT_OF_RANGE:
                lost.append(state)
            case FetchOutcome.FENCED:
                self._fenced(state)
            case FetchOutcome.FAILED:
                self._fail(state)

    async def _take_before(
        self, state: FetchState, asked: PartitionFetch, fetched: FetchedPartition, portions: Sequence[memoryview]
    ) -> FetchOutcome | None:
        """Handle all portions but the last, yielding to the loop in between; returns an outcome if that ends the
        answer."""
        tp = fetched.tp
        for portion in portions:
            outcome = self._take_in(state, replace(fetched, records=portion))
            if outcome is not FetchOutcome.PROGRESS:
                return outcome
            self._progressed(state.partition)
            await asyncio.sleep(0)
            if self._states.get(tp) is not state or not state.answers(replace(asked, offset=state.offset)):
                return FetchOutcome.IDLE  # removed, or in another epoch: the rest is fetched again
        return None

    def _take_in(self, state: FetchState, fetched: FetchedPartition) -> FetchOutcome:
        try:
            outcome = state.take(fetched)
        except Exception as trouble:
            state.trouble = trouble
            return FetchOutcome.FAILED
        if state.is_on_trial and outcome in _TAKEN:
            state.is_on_trial = False
            self._recovered(state.partition)
        return outcome

    def _delay(self, state: FetchState) -> None:
        state.due_ms = self._now_ms() + state.back_off_ms(self._settings.fetch_backoff_ms)
        self._delayed[state.partition.tp] = None
        self._changed[state.partition.tp] = None

    def _say(self, state: FetchState) -> None:
        """Log the trouble with a partition's records, once until it changes."""
        trouble, state.trouble = state.trouble, None
        if trouble is None or str(trouble) == state.reported:
            return
        state.reported = str(trouble)
        tp, at = str(state.partition.tp), state.offset
        log.error(
            "the leader's records cannot be appended", partition=tp, leader=self.leader, offset=at, error=state.reported
        )

    def _fenced(self, state: FetchState) -> None:
        # Usually the leader learned of its new epoch first, and the controller's request is on its way to us.
        log.info("its leader has a later leader epoch", partition=str(state.partition.tp), leader=self.leader)
        self.remove(state.partition.tp)
        self._failed(state.partition, None)

    def _fail(self, state: FetchState) -> None:
        self.remove(state.partition.tp)
        self._failed(state.partition, state.trouble)

    def _is_current(self, state: FetchState, epoch: int) -> bool:
        return self._states.get(state.partition.tp) is state and state.partition.leader_epoch == epoch

    async def _find_again(self, lost: Sequence[FetchState]) -> None:
        """After OFFSET_OUT_OF_RANGE: ask for the leader's bounds and continue from there (facts §11)."""
        epochs = [state.leader_epoch for state in lost]
        latest = await self._bounds(lost, LATEST_TIMESTAMP)
        earliest = await self._bounds(lost, EARLIEST_TIMESTAMP)
        for state, epoch in zip(lost, epochs, strict=True):
            tp = state.partition.tp
            end, start = latest.get(tp), earliest.get(tp)
            if not self._is_current(state, epoch):
                continue
            if end is None or start is None or end.error is not ErrorCode.NONE or start.error is not ErrorCode.NONE:
                fenced = end is not None and end.error is ErrorCode.FENCED_LEADER_EPOCH
                if fenced:
                    self._fenced(state)
                else:
                    self._delay(state)
                continue
            try:
                is_other = state.rejoin(start.offset, end.offset)
            except Exception as trouble:
                state.trouble = trouble
                self._fail(state)
                continue
            self._changed[tp] = None
            log.warning("out of the leader's range", partition=str(tp), leader=self.leader, offset=state.offset)
            if not is_other:
                self._delay(state)  # the same request would get the same answer

    async def _bounds(self, lost: Sequence[FetchState], timestamp: int) -> dict[TopicPartition, OffsetAnswer]:
        queries = [OffsetQuery(s.partition.tp, timestamp, s.leader_epoch) for s in lost]
        return {answer.tp: answer for answer in await self._link.list_offsets(queries)}

    async def _truncate_by_epochs(self) -> None:
        """With an IBP before 2.7-IV1: ask OffsetForLeaderEpoch until every partition knows where it agrees."""
        asking = {tp: s for tp, s in self._states.items() if s.truncating and tp not in self._delayed}
        queries = []
        for tp, state in asking.items():
            latest = state.log.epochs.latest
            if latest is None:
                self._cut(state, -1, -1)
            else:
                queries.append(EpochQuery(tp, latest, state.leader_epoch))
            self._changed[tp] = None
        for answer in await self._link.offsets_for_leader_epoch(queries) if queries else ():
            answered = asking.get(answer.tp)
            if answered is None or not self._is_current(answered, answered.leader_epoch):
                continue
            if answer.error is ErrorCode.NONE:
                self._cut(answered, answer.epoch, answer.end_offset)
            elif answer.error is ErrorCode.FENCED_LEADER_EPOCH:
                self._fenced(answered)
            else:
                self._delay(answered)

    def _cut(self, state: FetchState, epoch: int, end: int) -> None:
        try:
            state.cut(epoch, end)
        except Exception as trouble:
            state.trouble = trouble
            self._fail(state)


_TAKEN = frozenset({FetchOutcome.PROGRESS, FetchOutcome.IDLE, FetchOutcome.TRUNCATED})
