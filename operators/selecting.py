"""Which records of a topic are meant: ranges of offsets, what key and text contain, the newest or the first.

With a limit the records are read twice: first to find the offsets of those that are meant, in a memory that the limit
bounds, then to hand them out.
"""

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.settings import BadSettings
from logyard.admin.times import parse_time_ms
from logyard.operators.contents.masks import Fields
from logyard.operators.contents.shown import Search, contents, shown_headers
from logyard.operators.hooks.records import RecordsFailed, asked, headers_of, library, partitions_of, refusal
from logyard.operators.reading import REQUEST_S, Partition, Range, Reading, log_of

EARLIEST, NEWEST, LATEST = "earliest", "newest", "latest"
LIMIT_MAX = 100_000
_BATCH = 1000
# The newest are looked for in windows of offsets, each this many times as long as the one before it: compaction and
# transactions leave offsets without a record, and a search leaves most of them out.
_WIDER = 4


@dataclass(frozen=True, slots=True)
class Selection:
    """`partitions`: empty for all. `start`: earliest, newest, an offset or a time; `end`: latest, an offset or a time,
    without the record there. `limit`: the newest so many with `start` newest, else the first so many by their times.
    """

    topic: str
    partitions: tuple[int, ...] = ()
    start: str = EARLIEST
    end: str = LATEST
    limit: int | None = None
    search: Search = field(default_factory=Search)

    def __post_init__(self) -> None:
        """Raises BadSettings."""
        _place("start", self.start, (EARLIEST, NEWEST))
        _place("end", self.end, (LATEST,))
        if self.start == NEWEST and self.limit is None:
            raise BadSettings("start newest: give the limit too, how many of the newest records")
        if self.limit is not None and not 1 <= self.limit <= LIMIT_MAX:
            raise BadSettings(f"limit: 1 to {LIMIT_MAX:,} is expected, or none")


def _place(name: str, text: str, words: Sequence[str]) -> int | tuple[str, int]:
    """An offset, or the kind and the time in ms since 1970. Raises BadSettings."""
    if text in words:
        return (text, 0)
    if text.isdecimal() and len(text) < 19:
        return int(text)
    try:
        return ("time", parse_time_ms(text))
    except ValueError:
        raise BadSettings(f"{name} {text!r}: {', '.join(words)}, an offset or a time in ISO 8601 is expected") from None


class Selecting:
    """The records of a selection, read by a consumer of RecordsHook up to the ends of now.

    `fields`: what the search may not see. `told`: how many partitions the topic is known to have; the broker that is
    asked here may not have heard of all. `looked_at`: how many records were read to find those that are meant.
    """

    def __init__(
        self, consumer: Any, selection: Selection, fields: Fields | None, patience_s: float, told: int = 0
    ) -> None:
        self._consumer, self._selection, self._told = consumer, selection, told
        self._fields, self._patience_s = fields, patience_s
        self.looked_at = 0
        self.bounds = self._bounds()

    def records(self) -> Iterator[Any]:
        """`confluent_kafka.Message`s, of each partition in their order. Raises ApiError, RecordsFailed."""
        if self._selection.limit is None:
            yield from (
                message for message in self._messages(Reading(self._consumer, self.bounds)) if self._counted(message)
            )
            return
        chosen = self._chosen(self._selection.limit)
        ranges = {tp: (min(offsets), max(offsets) + 1) for tp, offsets in chosen.items()}
        left = sum(map(len, chosen.values()))
        for message in self._messages(Reading(self._consumer, ranges)):
            if message.offset() in chosen[message.topic(), message.partition()]:
                left -= 1
                yield message
        if left:
            raise RecordsFailed(f"topic {self._selection.topic}: {left} of the records were deleted meanwhile")

    def _bounds(self) -> dict[Partition, Range]:
        """The ranges between start and end; empty ones are left out."""
        selection = self._selection
        there = partitions_of(self._consumer, [selection.topic], REQUEST_S)
        heard = {tp.partition for tp in there}
        there += [library().TopicPartition(selection.topic, p) for p in range(self._told) if p not in heard]
        absent = set(selection.partitions) - {tp.partition for tp in there}
        if absent:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {selection.topic} has no partition {min(absent)}"
            )
        wanted = [tp for tp in there if not selection.partitions or tp.partition in selection.partitions]
        starts = self._placed(wanted, _place("start", selection.start, (EARLIEST, NEWEST)))
        ends = self._placed(wanted, _place("end", selection.end, (LATEST,)))
        found = {}
        for tp in wanted:
            low, high = log_of(self._consumer, tp)
            begin, end = max(low, starts.get(tp.partition, low)), min(high, ends.get(tp.partition, high))
            if begin < end:
                found[tp.topic, tp.partition] = (begin, end)
        return found

    def _placed(self, wanted: Sequence[Any], place: int | tuple[str, int]) -> dict[int, int]:
        """Partition → offset; a time behind the last record is the end."""
        if isinstance(place, int):
            return {tp.partition: place for tp in wanted}
        kind, time_ms = place
        if kind != "time":
            return {}
        confluent = library()
        asking = [confluent.TopicPartition(tp.topic, tp.partition, time_ms) for tp in wanted]
        found = {}
        for tp in asked("offsets of a time", self._consumer.offsets_for_times, asking, timeout=REQUEST_S):
            if tp.error is not None:
                raise refusal(f"offset of a time in {tp.topic}-{tp.partition}", tp.error)
            found[tp.partition] = tp.offset if tp.offset >= 0 else 2**62
        return found

    def _chosen(self, limit: int) -> dict[Partition, set[int]]:
        """The offsets of the `limit` that are meant."""
        newest = self._selection.start == NEWEST
        best: list[tuple[int, int, int]] = []  # a heap: time, partition, offset; the first is given up first
        found = dict.fromkeys(self.bounds, 0)
        ranges = {tp: _last(bound, limit) for tp, bound in self.bounds.items()} if newest else self.bounds
        while ranges:
            reading = Reading(self._consumer, ranges)
            for message in self._messages(reading):
                at = (message.topic(), message.partition())
                if (not newest and found[at] >= limit) or not self._counted(message):
                    continue
                found[at] += 1
                if not newest and found[at] == limit:
                    reading.leave(at)
                stamp = max(message.timestamp()[1], 0)
                entry = (stamp, at[1], message.offset())
                heapq.heappush(best, entry if newest else (-stamp, -at[1], -message.offset()))
                if len(best) > limit:
                    heapq.heappop(best)
            if not newest:
                break
            ranges = {
                tp: _before(used, self.bounds[tp])
                for tp, used in ranges.items()
                if found[tp] < limit and used[0] > self.bounds[tp][0]
            }
        chosen: dict[Partition, set[int]] = {}
        for _, partition, offset in best:
            chosen.setdefault((self._selection.topic, abs(partition)), set()).add(abs(offset))
        return chosen

    def _messages(self, reading: Reading) -> Iterator[Any]:
        if reading.ranges:
            for batch in reading.batches(_BATCH, None, self._patience_s):
                yield from batch

    def _counted(self, message: Any) -> bool:
        """Whether the record is one that is looked for; each is asked about once."""
        self.looked_at += 1
        search = self._selection.search
        if not search:
            return True
        key, value = contents(message.key(), message.value(), self._fields)
        return search.wants_key(key) and search.wants(key, value, shown_headers(headers_of(message), self._fields))


def _last(bound: Range, count: int) -> Range:
    return max(bound[0], bound[1] - count), bound[1]


def _before(used: Range, bound: Range) -> Range:
    """The wider range in front of this one."""
    return max(bound[0], used[0] - _WIDER * (used[1] - used[0])), used[0]
