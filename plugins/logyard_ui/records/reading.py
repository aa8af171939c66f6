"""Reads the records that somebody wants to see: the newest, or those from an offset or a time on, within a budget.

A look may be at a topic of any size with records of any size: it ends after LOOK_BYTES, LOOK_RECORDS or LOOK_S,
whatever comes first, and says so. Batches are unpacked one window at a time (broker/records/reader.py).
"""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.ports import EARLIEST, DescribingClient
from logyard.broker.errors import CorruptData
from logyard.broker.model import TopicPartition
from logyard.broker.records.header import iter_headers
from logyard.broker.records.legacy import iter_legacy
from logyard.broker.records.reader import whole_records

NEWEST, OFFSET, TIME = "newest", "offset", "time"

FETCH_BYTES = 1024 * 1024
LOOK_BYTES = 32 * 1024 * 1024
LOOK_RECORDS = 50_000
LOOK_S = 6.0
# How many of the newest a search looks at first.
SEARCHED_FIRST = 10_000
# The newest are looked for in windows of offsets, each this many times as long as the one before it: compaction and
# transactions leave offsets without a record.
_WIDER = 4
_V2 = 2


@dataclass(frozen=True, slots=True)
class Question:
    """What to show. `partitions`: empty for all; `at`: the offset, or the time in ms since 1970.

    `searched`: whether `keep` refuses records, so that the newest `limit` of those it keeps may be far back.
    """

    topic: str
    partitions: tuple[int, ...]
    start: str
    at: int
    limit: int
    searched: bool = False


class Raw(NamedTuple):
    """A record as it is on the wire."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    transactional: bool


Keep = Callable[[Raw], Any]
"""What is kept of a record; None: nothing."""


@dataclass(slots=True)
class Answer:
    """`found`: what was kept, the newest first or in the order of time; `looked_at`, `bytes`: the work that was done.

    `ended`: whole, or why the look ended early: bytes, records, time, left. `problems`: partition → why it was not
    read.
    """

    found: list[Any] = field(default_factory=list)
    looked_at: int = 0
    bytes: int = 0
    ended: str = "whole"
    problems: dict[int, str] = field(default_factory=dict)


class _Ended(Exception):
    """The budget is used up, or nobody waits any more; the text is for `Answer.ended`."""


def read(
    client: DescribingClient,
    question: Question,
    leaders: Mapping[int, int],
    keep: Keep,
    left: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> Answer:
    """Read; `leaders`: the living leader of each partition, `left`: whether the reader has gone away.

    Raises ApiError where the topic may not be read (TOPIC_AUTHORIZATION_FAILED), ClusterUnreachable.
    """
    look = _Look(client, question, keep, left, clock)
    wanted = question.partitions or tuple(sorted(leaders))
    for number in wanted:
        if number not in leaders:
            look.answer.problems[number] = "it has no leader now"
    partitions = {number: leaders[number] for number in wanted if number in leaders}
    try:
        look.run(partitions)
    except _Ended as why:
        look.answer.ended = str(why)
    look.answer.found = look.ordered()
    return look.answer


class _Span(NamedTuple):
    """Offsets of a partition from `begin` to before `end`; it has none before `low`."""

    low: int
    begin: int
    end: int

    def before(self) -> "_Span":
        """The wider span in front of this one."""
        return _Span(self.low, max(self.low, self.begin - _WIDER * (self.end - self.begin)), self.begin)


# Its time, partition and offset, and what is kept of the record.
_Entry = tuple[int, int, int, Any]


class _Look:
    """One look: its position in each partition, and what it has kept."""

    def __init__(
        self,
        client: DescribingClient,
        question: Question,
        keep: Keep,
        left: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._client, self._question, self._keep = client, question, keep
        self._left, self._clock = left, clock
        self._deadline = clock() + LOOK_S
        self._kept: dict[int, list[_Entry]] = {}
        self._window: dict[int, deque[_Entry]] = {}
        self.answer = Answer()

    def run(self, leaders: Mapping[int, int]) -> None:
        spans = self._spans(sorted(leaders))
        while spans:
            self._window = {number: deque(maxlen=self._question.limit) for number in spans}
            self._read_window(leaders, {number: (span.begin, span.end) for number, span in spans.items()})
            self._settle()
            spans = {number: span.before() for number, span in spans.items() if self._goes_back(number, span)}

    def _read_window(self, leaders: Mapping[int, int], spans: dict[int, tuple[int, int]]) -> None:
        # In turn: one large partition does not use up what the others need.
        while spans:
            for number, (position, end) in list(spans.items()):
                position = self._step(number, leaders[number], position, end)
                if position >= end or self._has_enough(number):
                    del spans[number]
                else:
                    spans[number] = (position, end)

    def _settle(self) -> None:
        """Put what the window has before what was kept of later ones."""
        for number, found in self._window.items():
            self._kept[number] = [*found, *self._kept.get(number, ())][-self._question.limit :]
        self._window = {}

    def _goes_back(self, number: int, span: "_Span") -> bool:
        """Whether more of the newest have to be looked for before this span."""
        if self._question.start != NEWEST or number in self.answer.problems:
            return False
        return span.begin > span.low and len(self._kept[number]) < self._question.limit

    def ordered(self) -> list[Any]:
        newest = self._question.start == NEWEST
        self._settle()
        every = [entry for kept in self._kept.values() for entry in kept]
        every.sort(key=lambda entry: entry[:3], reverse=newest)
        return [entry[3] for entry in every[: self._question.limit]]

    def _spans(self, numbers: Sequence[int]) -> dict[int, "_Span"]:
        """Partition → the offset to begin at and the one to end before."""
        question, client = self._question, self._client
        tps = [TopicPartition(question.topic, number) for number in numbers]
        if not tps:
            return {}
        first, last = client.offsets(tps, EARLIEST), client.offsets(tps)
        at_time = client.offsets(tps, question.at) if question.start == TIME else {}
        share = SEARCHED_FIRST // len(tps) if question.searched else question.limit
        found = {}
        for tp in tps:
            low, high = first.get(tp, 0), last.get(tp, 0)
            begin = {
                NEWEST: high - max(share, question.limit),
                OFFSET: question.at,
                TIME: high if at_time.get(tp, -1) < 0 else at_time.get(tp, -1),
            }[question.start]
            begin = min(max(begin, low), high)
            if begin < high:
                found[tp.partition] = _Span(low, begin, high)
        return found

    def _step(self, number: int, leader: int, position: int, end: int) -> int:
        """Fetch once and keep what is wanted; returns where to go on, `end` where that is nowhere."""
        self._check()
        tp = TopicPartition(self._question.topic, number)
        try:
            fetched = self._client.fetch(tp, leader, position, FETCH_BYTES)
        except ApiError as refusal:
            if refusal.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise
            if refusal.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                # Retention has moved the start since it was asked for.
                start = self._client.offsets([tp], EARLIEST).get(tp, end)
                return start if position < start < end else end
            self.answer.problems[number] = str(refusal)
            return end
        self.answer.bytes += len(fetched.data)
        return self._unpack(number, fetched.data, position, end)

    def _unpack(self, number: int, data: bytes, position: int, end: int) -> int:
        view, going = memoryview(data), position
        try:
            for at, header in iter_headers(view):
                batch = view[at : at + header.length]
                going = max(going, header.next_offset)
                if header.is_control or header.next_offset <= position or self._has_enough(number):
                    continue
                records: Iterator[Any] = whole_records(batch, header) if header.magic == _V2 else iter_legacy(batch)
                self._take(number, records, position, end, header.magic == _V2 and header.is_transactional)
        except CorruptData as problem:
            self.answer.problems[number] = f"from offset {going} on it cannot be read: {problem}"
            return end
        # No whole batch came: what follows cannot be fetched, and asking again would not end.
        return going if going > position else end

    def _take(self, number: int, records: Iterator[Any], position: int, end: int, transactional: bool) -> None:
        for record in records:
            self.answer.looked_at += 1
            self._go_on()
            if not position <= record.offset < end:
                continue
            stamp = record.timestamp if record.timestamp is not None else -1
            headers = tuple(record.headers)
            raw = Raw(number, record.offset, stamp, record.key, record.value, headers, transactional)
            kept = self._keep(raw)
            if kept is None:
                continue
            self._window[number].append((stamp, number, record.offset, kept))
            if self._has_enough(number):
                return

    def _has_enough(self, number: int) -> bool:
        """Whether the partition needs no look further on; of the newest, what comes later replaces what came first."""
        return self._question.start != NEWEST and len(self._window[number]) >= self._question.limit

    def _check(self) -> None:
        """Before bytes are fetched. What was fetched is unpacked, unless `_go_on` ends it."""
        self._go_on()
        if self.answer.bytes >= LOOK_BYTES:
            raise _Ended("bytes")

    def _go_on(self) -> None:
        if self._left():
            raise _Ended("left")
        if self._clock() >= self._deadline:
            raise _Ended("time")
        if self.answer.looked_at > LOOK_RECORDS:
            raise _Ended("records")
