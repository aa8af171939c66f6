"""The history of one topic's changes, from the znode to the disks, read from the brokers' log lines. Pure.

A line of a broker's log: time, level, [broker], text, two blanks, key=value…. The lines are connected by these keys:
- the controller's lines have `event_id`, the event being handled, and `cause`, the event that caused that one;
- a broker's lines about LeaderAndIsr, UpdateMetadata and StopReplica have the same `event_id`, as the request's
correlation id, with `controller` and `controller_epoch`; `made` names logs that were created, `deleted` those that were
removed.
Event ids start again with each controller process; the controller's epoch tells the terms apart.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, overload

ORDERS = ("LeaderAndIsr", "UpdateMetadata", "StopReplica")

_LINE = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+) (\w+) +\[([0-9]{1,10})\] (.*?)(?:  (\w+=.*))?")
_KEY = re.compile(r"(?:^| )(\w+)=")
_WORD = re.compile(r"[A-Za-z0-9._-]+")
# One partition, or several that follow each other: `flights-3`, `flights-0..299`. Longer digits are part of a name.
_RANGE = re.compile(r"(.+)-([0-9]{1,10})(?:\.\.([0-9]{1,10}))?")
_LIST = re.compile(r"\[[^\[\]{}]*\]")
_FOLDED_FROM = 10
# A topic may have the name of another topic's partition, so these keys are read as naming one kind only.
_TOPICS = ("topic", "topics", "new", "vanished")
_PARTITIONS = ("partition", "partitions", "made", "deleted")
_PAIRS = {"[": "]", "{": "}", "(": ")"}
# How a value begins in which blanks may be: quoted, in brackets, or as Python shows an object: `ValueError('a b')`.
_OPENS = re.compile(r"b?['\"]|[\w.]*[\[{(]")
_NUMBER = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a broker's log; `time` as it is written, which also sorts."""

    time: str
    level: str
    broker: int
    what: str
    fields: Mapping[str, str]

    def names(self, topic: str) -> bool:
        """Whether the topic, or a partition of it, is named in any value."""
        return any(self._names(key, value, topic) for key, value in self.fields.items() if topic in value)

    @staticmethod
    def _names(key: str, value: str, topic: str) -> bool:
        words = _WORD.findall(value)
        if key not in _PARTITIONS and topic in words:
            return True
        return key not in _TOPICS and any(_of(topic).fullmatch(word) for word in words)

    @property
    def is_order(self) -> bool:
        return self.what in ORDERS and "controller" in self.fields

    @overload
    def number(self, key: str) -> int | None: ...
    @overload
    def number(self, key: str, otherwise: int) -> int: ...
    def number(self, key: str, otherwise: int | None = None) -> int | None:
        """The number under that key; `otherwise` if there is none, as in a log of another version."""
        text = self.fields.get(key, "")
        return int(text) if _NUMBER.fullmatch(text) else otherwise


@dataclass(frozen=True, slots=True)
class EventKey:
    """One event of one controller's term; epoch -1 if the log does not reach back to the election."""

    controller: int
    epoch: int
    event: int


@dataclass
class Chapter:
    """One event: the controller's log lines about it, and what brokers did because of it."""

    key: EventKey
    kind: str = ""
    cause: int = 0
    said: list[Line] = field(default_factory=list)
    done: list[Line] = field(default_factory=list)

    @property
    def time(self) -> str:
        return min(line.time for line in [*self.said, *self.done])

    def names(self, topic: str) -> bool:
        return any(line.names(topic) for line in [*self.said, *self.done])


def parse(text: Iterable[str]) -> Iterator[Line]:
    """The lines of a log; other text (traces, output of other programs) is skipped."""
    for raw in text:
        match = _LINE.fullmatch(raw.rstrip("\n"))
        if match is not None:
            yield Line(match[1], match[2], int(match[3]), match[4], parse_fields(match[5] or ""))


def parse_fields(text: str) -> dict[str, str]:
    """Parse `key=value …`, where values may be quoted or in brackets, and then contain blanks and `=`.

    The log quotes a value only if it has a blank: any other ends at the next one, whatever quotes it has.
    """
    found = {}
    key, plain = _KEY.match(text), False
    while key is not None:
        end = key.end()
        if not plain and _OPENS.match(text, end):
            end = _end_of_value(text, end)
            plain = end == key.end()  # it is closed nowhere: once is enough to look at all that follows
        following = _KEY.search(text, end)
        end = following.start() if following is not None else len(text)
        found[key[1]] = text[key.end() : end].strip()
        key = following
    return found


def _end_of_value(text: str, start: int) -> int:
    """Where a value with quotes or brackets ends; where it starts, if they are not closed again."""
    closing: list[str] = []
    escaped = False
    for position in range(start, len(text)):
        letter = text[position]
        quoted = bool(closing) and closing[-1] in "'\""
        if escaped:
            escaped = False
        elif quoted and letter == "\\":
            escaped = True
        elif closing and letter == closing[-1]:
            closing.pop()
        elif quoted:
            continue
        elif letter == " " and not closing:
            return position
        elif letter in _PAIRS:
            closing.append(_PAIRS[letter])
        elif letter in "'\"":
            closing.append(letter)
    return start if closing else len(text)


def chapters(lines: Iterable[Line]) -> list[Chapter]:
    """Group the lines by their events, in the order of time."""
    epochs: dict[int, int] = {}
    found: dict[EventKey, Chapter] = {}
    for line in sorted((line for line in lines if line.number("event_id") is not None), key=lambda line: line.time):
        if line.is_order:
            controller, epoch = line.number("controller", -1), line.number("controller_epoch", -1)
        else:
            if line.what == "elected as controller":
                epochs[line.broker] = line.number("epoch", -1)
            controller, epoch = line.broker, epochs.get(line.broker, -1)
        key = EventKey(controller, epoch, line.number("event_id", 0))
        chapter = found.setdefault(key, Chapter(key))
        if line.is_order:
            chapter.done.append(line)
        else:
            chapter.said.append(line)
            chapter.kind = line.fields.get("kind", chapter.kind)
            chapter.cause = line.number("cause", chapter.cause)
    return sorted(found.values(), key=lambda chapter: chapter.time)


def story(lines: Iterable[Line], topic: str) -> list[Chapter]:
    """The events that touched a topic, and those that caused them."""
    every = chapters(lines)
    by_key = {chapter.key: chapter for chapter in every}
    wanted = {chapter.key for chapter in every if chapter.names(topic)}
    for key in list(wanted):
        cause = by_key[key].cause
        while cause:
            before = EventKey(key.controller, key.epoch, cause)
            if before not in by_key or before in wanted:
                break
            wanted.add(before)
            cause = by_key[before].cause
    return [chapter for chapter in every if chapter.key in wanted]


def text(found: Iterable[Chapter], topic: str) -> list[str]:
    """The history as lines: an event, the controller's lines, what each broker did."""
    lines = []
    for chapter in found:
        key = chapter.key
        term = f" epoch {key.epoch}" if key.epoch >= 0 else ""
        cause = f", caused by event {chapter.cause}" if chapter.cause else ""
        kind = f" {chapter.kind}" if chapter.kind else ""
        lines.append(f"{chapter.time}  event {key.event}{kind} at controller {key.controller}{term}{cause}")
        lines += [f"  {_clock(line)}  broker {line.broker}: {_said(line)}" for line in chapter.said]
        lines += [
            f"  {_clock(line)}  broker {line.broker}: {_done(line, topic)}"
            for line in chapter.done
            if line.names(topic)
        ]
    return lines


def as_json(found: Iterable[Chapter], topic: str) -> list[dict[str, Any]]:
    return [
        {
            "controller": chapter.key.controller,
            "controller_epoch": chapter.key.epoch,
            "event": chapter.key.event,
            "kind": chapter.kind,
            "cause": chapter.cause,
            "said": [_line_json(line) for line in chapter.said],
            "done": [_line_json(line) for line in chapter.done if line.names(topic)],
        }
        for chapter in found
    ]


def _line_json(line: Line) -> dict[str, Any]:
    return {"time": line.time, "broker": line.broker, "what": line.what, "fields": dict(line.fields)}


def _said(line: Line) -> str:
    known = ("event_id", "cause", "kind")
    rest = " ".join(f"{key}={_folded_list(value)}" for key, value in line.fields.items() if key not in known)
    return f"{line.what}  {rest}".rstrip()


def _done(line: Line, topic: str) -> str:
    told = [f"{line.what} {', '.join(_partitions(line, 'partitions', topic))}".rstrip()]
    if made := _partitions(line, "made", topic):
        told.append(f"log created: {', '.join(made)}")
    if deleted := _partitions(line, "deleted", topic):
        told.append(f"log deleted: {', '.join(deleted)}")
    return "; ".join(told)


def _partitions(line: Line, key: str, topic: str) -> list[str]:
    return _folded([word for word in _WORD.findall(line.fields.get(key, "")) if _of(topic).fullmatch(word)])


@cache
def _of(topic: str) -> re.Pattern[str]:
    """A partition of the topic, or a range of them."""
    return re.compile(re.escape(topic) + r"-[0-9]{1,10}(\.\.[0-9]{1,10})?")


def _folded(names: Iterable[str]) -> list[str]:
    """Partitions and ranges of them in order, successive ones as one range."""
    found: list[tuple[str, int, int]] = []
    for topic, first, last in sorted(_bounds(name) for name in names):
        if found and found[-1][0] == topic and found[-1][2] + 1 >= first:
            found[-1] = (topic, found[-1][1], max(found[-1][2], last))
        else:
            found.append((topic, first, last))
    return [f"{t}-{first}" if first == last else f"{t}-{first}..{last}" for t, first, last in found]


def _bounds(name: str) -> tuple[str, int, int]:
    match = _RANGE.fullmatch(name)
    assert match is not None, name
    return match[1], int(match[2]), int(match[3] or match[2])


def _folded_list(value: str) -> str:
    """A list of partitions with successive ones as one range; any other value as it is."""
    words = _WORD.findall(value)
    if len(words) < _FOLDED_FROM or not _LIST.fullmatch(value) or not all(map(_RANGE.fullmatch, words)):
        return value
    return f"[{', '.join(_folded(words))}]"


def _clock(line: Line) -> str:
    return line.time.partition(" ")[2]
