"""The leader's side of incremental fetch sessions (KIP-227): the broker remembers what a client asked before.

Rule 1: a session's request names only the partitions whose parameters changed; its answer only those with news.
Rule 2: a partition is *quiet* once it was read and had nothing: it is not read again before it changes (`touch`) or is
asked with other parameters. So a follower's fetch of a thousand idle partitions costs as much as one; its `Heartbeat`
says that it is alive and at the end of all of them.
Rule 3: partitions with an error, with data not yet fetched, without room in the answer, and those whose follower is not
in the ISR (each fetch may let it join) are never quiet.
Rule 4: there are 1000 sessions; `FetchSessions._make_room` decides which one is evicted (facts §20; Kafka's
FetchSession rules).
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial

from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.replication.events import FetchedPartition, FetchParams, PartitionFetch
from logyard.broker.replication.fetch.contexts import NO_SESSION, FetchContext, Full, Refused
from logyard.broker.replication.fetch.fetch import Hurry, Sessionless
from logyard.broker.replication.fetch.reader import view_end
from logyard.broker.replication.fetch.session_keys import SessionKey, answered_key, key_of
from logyard.broker.replication.follower.session import next_epoch
from logyard.broker.replication.hosted import Hosted
from logyard.broker.replication.isr import Heartbeat

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
# So many partitions may a client ask for besides twice those that this broker has: each that it does not have is looked
# at by every fetch of a session, on the event loop.
PARTITIONS_BESIDES = 4096

Allowed = Callable[[str], bool] | None
"""Says which topics may be read; None: all."""


class Remembered:
    """One partition of a session: its parameters, and the last answer."""

    __slots__ = ("ask", "high_watermark", "log_start_offset")

    def __init__(self, ask: PartitionFetch) -> None:
        self.ask = ask
        self.high_watermark = -1
        self.log_start_offset = -1

    def record(self, answer: FetchedPartition) -> bool:
        """Record an answer as sent; returns whether it has news and must be sent. After an error every answer has."""
        watermark, start = answer.high_watermark, answer.log_start_offset
        if answer.error or answer.diverging is not None:
            self.high_watermark, self.log_start_offset = -1, start
            return True
        news = (
            watermark != self.high_watermark
            or start != self.log_start_offset
            or len(answer.records) > 0
            or answer.preferred_read_replica >= 0
        )
        self.high_watermark, self.log_start_offset = watermark, start
        return news


class FetchSession:
    """One client's session: it observes its partitions and is the source of its fetches."""

    def __init__(
        self, session_id: int, hosted: Hosted, params: FetchParams, *, uses_topic_ids: bool, now_ms: int
    ) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.privileged = params.from_follower
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.heartbeat = Heartbeat()
        self._hosted = hosted
        self._params = params
        self._allowed: Allowed = None
        self._rights: Hashable = None
        self._partitions: dict[SessionKey, Remembered] = {}
        self._by_name: dict[TopicPartition, SessionKey] = {}
        self._unnamed: dict[SessionKey, None] = {}  # partitions whose topic id is not known here yet
        self._restless: dict[SessionKey, None] = {}
        self._looking_at: dict[SessionKey, None] = {}
        self._refused: list[FetchedPartition] = []  # of those looked at, what `candidates` left out
        self._touched: PartitionFetch | None = None

    def __len__(self) -> int:
        return len(self._partitions)

    # The question

    def begin(self, params: FetchParams, allowed: Allowed, rights: Hashable, now_ms: int) -> None:
        """Start a new request of this session. With other rights than the last one had, all partitions are read."""
        self._params = params
        self._allowed = allowed
        if rights != self._rights:
            self._rights = rights
            self._restless.update(dict.fromkeys(self._partitions))
        # Of an earlier request that is not answered, and will not be: the client may have lost its connection.
        self.put_back()
        self.last_used_ms = now_ms

    def remember(self, asks: Iterable[PartitionFetch]) -> None:
        """Add these partitions, or change their parameters; all will be read."""
        for ask in asks:
            key = key_of(ask)
            known = self._partitions.get(key)
            if known is None:
                self._partitions[key] = Remembered(ask)
            else:
                if not ask.tp.topic:
                    ask.tp = known.ask.tp  # the metadata may have lost the topic's name, but the id has no other
                known.ask = ask
                # A client that starts over may have lost the last answer, so it is sent again.
                known.high_watermark = -1
            if ask.tp.topic:
                self._by_name[ask.tp] = key
                self._unnamed.pop(key, None)
            else:
                self._unnamed[key] = None
            self._restless[key] = None

    def answered(self, key: SessionKey, answer: FetchedPartition) -> None:
        """Record the full answer that opened the session."""
        self._partitions[key].record(answer)

    def forget(self, keys: Iterable[SessionKey]) -> None:
        """Remove these partitions."""
        for key in keys:
            known = self._partitions.pop(key, None)
            self._unnamed.pop(key, None)
            self._restless.pop(key, None)
            self._looking_at.pop(key, None)
            if known is not None and self._by_name.get(known.ask.tp) == key:
                del self._by_name[known.ask.tp]
                self._detach(known.ask.tp)

    def close(self) -> None:
        """End the session: it no longer observes its partitions."""
        self.forget(list(self._partitions))

    def _detach(self, tp: TopicPartition) -> None:
        partition = self._hosted.partitions.get(tp)
        if partition is None:
            return
        partition.observers.pop(self, None)
        for remote in partition.remotes.values():
            if remote.heartbeat is self.heartbeat and partition.log is not None:
                remote.detach(partition.log.log_end_offset)

    # Observer

    def touch(self, tp: TopicPartition) -> None:
        """The partition changed: read it in this fetch, if it still waits, and in the next one."""
        key = self._by_name.get(tp)
        if key is not None:
            self._restless[key] = None
            self._touched = self._partitions[key].ask

    # FetchSource

    def candidates(self) -> Iterable[PartitionFetch]:
        """The partitions that changed or were named since the last request, except those that this request has read."""
        self._looking_at.update(self._restless)
        self._restless = {}
        if self._unnamed:
            self._name()
        asks = []
        self._refused = []
        partitions, mine, allowed = self._hosted.partitions, self._partitions, self._allowed
        for key in self._looking_at:
            ask = mine[key].ask
            tp = ask.tp
            if tp.topic and (allowed is None or allowed(tp.topic)):
                partition = partitions.get(tp)
                if partition is not None:
                    partition.observers[self] = None
                asks.append(ask)
            else:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if tp.topic else ErrorCode.UNKNOWN_TOPIC_ID
                self._refused.append(FetchedPartition(tp, code, topic_id=ask.topic_id))
        return asks

    def _name(self) -> None:
        for key in list(self._unnamed):
            ask = self._partitions[key].ask
            name = self._hosted.metadata.topic_name(ask.topic_id)
            if name is not None:
                ask.tp = TopicPartition(name, ask.tp.partition)
                self._by_name[ask.tp] = key
                del self._unnamed[key]

    def refusals(self) -> Iterable[FetchedPartition]:
        return self._refused

    def keys(self) -> Iterable[Hashable]:
        return (self, Hurry(self._params.replica_id)) if self.privileged else (self,)

    def touched(self, key: Hashable) -> PartitionFetch | None:
        return self._touched

    # The answer

    def put_back(self) -> None:
        """Nothing is sent this time (a quota): the partitions that were read are read again."""
        if self._looking_at:
            self._restless = {**self._looking_at, **self._restless}
            self._looking_at = {}

    def news(self, answers: Sequence[FetchedPartition]) -> list[FetchedPartition]:
        """Return the answers with news; partitions that may have more are read again."""
        news = []
        served = []
        mine, by_id = self._partitions, self.uses_topic_ids
        for answer in answers:
            key = answered_key(answer, by_id)
            known = mine.get(key)
            if known is None:
                continue
            if known.record(answer):
                news.append(answer)
            if len(answer.records) > 0:
                served.append(key)
            elif not self._is_quiet(known.ask, answer):
                self._restless[key] = None
        for key in served:
            # Partitions with data move to the end, so that none starves behind a busy one.
            self._restless.pop(key, None)
            self._restless[key] = None
        self._looking_at = {}
        return news

    def _is_quiet(self, ask: PartitionFetch, answer: FetchedPartition) -> bool:
        if answer.error or answer.diverging is not None or answer.preferred_read_replica >= 0:
            return False
        partition = self._hosted.partitions.get(ask.tp)
        if partition is None or partition.log is None or self not in partition.observers:
            return False
        if view_end(self._params, partition.log) > ask.offset:
            return False
        return not self.privileged or self._params.replica_id in partition.isr.committed


class _Incremental:
    """A request in a session, which may have a newer one before this is answered."""

    __slots__ = ("_expected", "source")

    error = ErrorCode.NONE

    def __init__(self, session: FetchSession) -> None:
        self.source = session
        self._expected = session.epoch

    def finish(self, answers: list[FetchedPartition]) -> tuple[ErrorCode, int, list[FetchedPartition]]:
        session = self.source
        if session.epoch != self._expected:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id, []
        return ErrorCode.NONE, session.id, session.news(answers)

    def postpone(self) -> tuple[ErrorCode, int]:
        session = self.source
        if session.epoch != self._expected:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id
        session.put_back()
        return ErrorCode.NONE, session.id


class FetchSessions:
    """All sessions of this broker. `random_id` gives numbers from 1 to 2**31 - 1."""

    def __init__(self, hosted: Hosted, random_id: Callable[[], int]) -> None:
        self._hosted = hosted
        self._random_id = random_id
        self._sessions: dict[int, FetchSession] = {}  # least recently used first
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        params: FetchParams,
        session_id: int,
        epoch: int,
        asks: Sequence[PartitionFetch],
        forgotten: Iterable[SessionKey] = (),
        *,
        uses_topic_ids: bool,
        allowed: Allowed = None,
        rights: Hashable = None,
    ) -> FetchContext:
        """Resolve a request. Partitions with an unknown topic id have the empty topic name.

        `allowed` is of the client; `rights` has another value when that may have changed. Session
        errors: FETCH_SESSION_ID_NOT_FOUND (also of one that has grown too large), INVALID_FETCH_SESSION_EPOCH,
        FETCH_SESSION_TOPIC_ID_ERROR (ids and names).
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != NO_SESSION:
                self._remove(session_id)
            return self._without_session(params, epoch, asks, uses_topic_ids, allowed)
        session = self._sessions.get(session_id)
        if session is None:
            return Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return Refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return Refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        now = self._hosted.now_ms()
        session.begin(params, allowed, rights, now)
        session.forget(forgotten)
        session.remember(asks)
        size = len(session)
        if not size:
            self._remove(session_id)
            return self._without_session(params, FINAL_EPOCH, asks, uses_topic_ids, allowed)
        if size > PARTITIONS_BESIDES + 2 * len(self._hosted.partitions):
            self._remove(session_id)
            return Refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = next_epoch(epoch)
        self._sessions[session_id] = self._sessions.pop(session_id)
        return _Incremental(session)

    def _without_session(
        self, params: FetchParams, epoch: int, asks: Sequence[PartitionFetch], uses_topic_ids: bool, allowed: Allowed
    ) -> FetchContext:
        readable, refusals = [], []
        for ask in asks:
            topic = ask.tp.topic
            if topic and (allowed is None or allowed(topic)):
                readable.append(ask)
            else:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if topic else ErrorCode.UNKNOWN_TOPIC_ID
                refusals.append(FetchedPartition(ask.tp, code, topic_id=ask.topic_id))
        opens = None if epoch != INITIAL_EPOCH else partial(self._create, params, asks, uses_topic_ids)
        return Full(Sessionless(readable, refusals), opens)

    def _create(
        self, params: FetchParams, asks: Sequence[PartitionFetch], uses_topic_ids: bool, answers: list[FetchedPartition]
    ) -> int:
        """Open a session for a full request that was answered; 0 if there is nothing to keep or no room."""
        now = self._hosted.now_ms()
        if not asks or not self._make_room(params.from_follower, len(asks), now):
            return NO_SESSION
        session_id = self._random_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._random_id()
        session = FetchSession(session_id, self._hosted, params, uses_topic_ids=uses_topic_ids, now_ms=now)
        session.remember(asks)
        for answer in answers:
            session.answered(answered_key(answer, uses_topic_ids), answer)
        self._sessions[session_id] = session
        return session_id

    def _make_room(self, privileged: bool, size: int, now_ms: int) -> bool:
        """Evict a session that was unused for the eviction time; else the least valuable one, if the new one is worth
        more.

        Followers are worth more than consumers, then the number of partitions counts. Sessions beyond the eviction time
        give way to any other, younger consumers' only to followers, younger followers' to none.
        """
        settings = self._hosted.settings
        if len(self._sessions) < settings.fetch_session_slots_max:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > settings.fetch_session_eviction_ms:
            return self._evict(oldest)
        candidates = [
            s
            for s in self._sessions.values()
            if now_ms - s.created_ms > settings.fetch_session_eviction_ms or (privileged and not s.privileged)
        ]
        least = min(candidates, key=lambda s: (s.privileged, len(s), s.id), default=None)
        if least is None or (privileged, size) < (least.privileged, len(least)):
            return False
        return self._evict(least)

    def _evict(self, session: FetchSession) -> bool:
        self.evictions += 1
        self._remove(session.id)
        return True

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()
