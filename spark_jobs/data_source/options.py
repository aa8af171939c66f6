"""The options of `spark.read.format("logyard")` and `readStream`, checked; names and meanings are those of Spark's
Kafka source where it has them.

| option | means |
|---|---|
| `subscribe` / `subscribePattern` / `assign` | topics by commas / a regular expression / JSON `{"topic": [0, 1]}` |
| a path | a broker's log directory, or one partition's (of a stopped broker, a copy, or Apache Kafka) |
| `kafka.bootstrap.servers`, `clusterFile` | a live cluster, leased; `tokenFile`, `tokens`, `security` as in jobs |
| `startingOffsets`, `endingOffsets` | `earliest`, `latest` or JSON `{"topic": {"0": 42}}`, -2 earliest, -1 latest |
| `startingTimestamp`, `endingTimestamp` | milliseconds: from / up to the first offset not older |
| `startingOffsetsByTimestamp`, `endingOffsetsByTimestamp` | the same, JSON `{"topic": {"0": 1700000000000}}` |
| `startingOffsetsByTimestampStrategy` | `error` or `latest`, if no offset is that new (`error`) |
| `isolationLevel` | `read_committed` or `read_uncommitted` (`read_committed`) |
| `failOnDataLoss` | whether missing offsets are an error (true) |
| `columns` | which columns to read, by commas (all) |
| `includeControlRecords` | whether transaction markers are rows too, told by isControl (false) |
| `splitMib` | about how much one task reads (64) |
| `leaseTtlS` | seconds without a sign of life after which a lease ends, 5 to 600 (600) |
| `maxOffsetsPerTrigger` | streams: the most offsets of a micro-batch |
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from logyard.broker.errors import LogyardError
from logyard.broker.model import TopicPartition

EARLIEST, LATEST = -2, -1
INTERNAL_PREFIX = "__"
# What brokers allow (docs/leases.md).
LEASE_TTL_MIN_S, LEASE_TTL_MAX_S = 5, 600


class BadOption(LogyardError):
    """An option is missing or invalid; the text names it and what is allowed."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Where a range begins or ends: an offset (EARLIEST and LATEST are special values), or a time in ms."""

    offset: int = EARLIEST
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Edges:
    """One edge for all partitions, and those of single ones."""

    default: Edge
    single: Mapping[TopicPartition, Edge] = field(default_factory=dict)

    def of(self, tp: TopicPartition) -> Edge:
        return self.single.get(tp, self.default)


@dataclass(frozen=True, slots=True)
class Options:
    """The parsed options. `given` has the raw ones, by lower-case name, for the connection."""

    topics: tuple[str, ...]
    pattern: re.Pattern[str] | None
    assigned: Mapping[str, frozenset[int]]
    path: str | None
    starting: Edges
    ending: Edges
    latest_where_none: bool
    committed_only: bool
    fail_on_data_loss: bool
    control: bool
    split_bytes: int
    max_offsets: int | None
    lease_ttl_s: int
    given: Mapping[str, str] = field(repr=False)

    def wants(self, tp: TopicPartition) -> bool:
        """Whether a partition is selected."""
        if self.assigned:
            return tp.partition in self.assigned.get(tp.topic, ())
        if self.pattern is not None:
            return self.pattern.fullmatch(tp.topic) is not None
        return not self.topics or tp.topic in self.topics

    def names(self, existing: Iterable[str]) -> list[str]:
        """The selected topics; a pattern is matched against existing topics (without Kafka's internal ones)."""
        if self.pattern is None:
            return list(self.assigned or self.topics)
        matching = (t for t in existing if not t.startswith(INTERNAL_PREFIX))
        return sorted(t for t in matching if self.pattern.fullmatch(t))


def parse(options: Mapping[str, str]) -> Options:
    """Check all options; raises BadOption. Case is ignored, because Spark folds the names of options to lower case."""
    given = {key.lower(): value for key, value in options.items()}
    chosen = [name for name in ("subscribe", "subscribepattern", "assign") if given.get(name)]
    if len(chosen) > 1:
        raise BadOption(f"{chosen[0]} and {chosen[1]}: give one of subscribe, subscribePattern and assign")
    if not chosen and not given.get("path"):
        raise BadOption("subscribe, subscribePattern or assign: name the topics to read")
    topics = tuple(t.strip() for t in given.get("subscribe", "").split(",") if t.strip())
    pattern, assigned = _pattern(given), _assigned(given)
    if chosen and not (topics or pattern or assigned):
        raise BadOption(f"{chosen[0]} {given[chosen[0]]!r}: it names no topic")
    return Options(
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        path=given.get("path"),
        starting=_edges(given, "starting", Edge(EARLIEST)),
        ending=_edges(given, "ending", Edge(LATEST)),
        latest_where_none=_choice(given, "startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        committed_only=_choice(given, "isolationLevel", ("read_committed", "read_uncommitted")) == "read_committed",
        fail_on_data_loss=_choice(given, "failOnDataLoss", ("true", "false")) == "true",
        control=_choice(given, "includeControlRecords", ("false", "true")) == "true",
        split_bytes=_number(given, "splitMib", 64) * 1024 * 1024,
        max_offsets=_number(given, "maxOffsetsPerTrigger", 0) or None,
        lease_ttl_s=_lease_ttl(given),
        given=given,
    )


def _choice(given: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    value = given.get(name.lower(), allowed[0]).lower()
    if value not in allowed:
        raise BadOption(f"{name} {value!r}: {' or '.join(allowed)} is expected")
    return value


def _number(given: Mapping[str, str], name: str, default: int) -> int:
    text = given.get(name.lower(), str(default))
    if not text.isascii() or not text.isdigit() or (int(text) == 0 and default != 0):
        raise BadOption(f"{name} {text!r}: a whole number above 0 is expected")
    return int(text)


def _lease_ttl(given: Mapping[str, str]) -> int:
    seconds = _number(given, "leaseTtlS", LEASE_TTL_MAX_S)
    if not LEASE_TTL_MIN_S <= seconds <= LEASE_TTL_MAX_S:
        raise BadOption(f"leaseTtlS {seconds}: {LEASE_TTL_MIN_S} to {LEASE_TTL_MAX_S} are expected")
    return seconds


def _pattern(given: Mapping[str, str]) -> "re.Pattern[str] | None":
    text = given.get("subscribepattern")
    try:
        return re.compile(text) if text else None
    except re.error as error:
        raise BadOption(f"subscribePattern {text!r}: no regular expression ({error})") from None


def _assigned(given: Mapping[str, str]) -> dict[str, frozenset[int]]:
    if not given.get("assign"):
        return {}
    try:
        return {str(t): frozenset(map(int, ps)) for t, ps in json.loads(given["assign"]).items()}
    except (ValueError, AttributeError, TypeError):
        raise BadOption('assign: JSON {"topic": [0, 1]} is expected') from None


def _edges(given: Mapping[str, str], side: str, default: Edge) -> Edges:
    """Times take precedence over offsets, and single partitions over all partitions, as in Spark's Kafka source."""
    by_partition = given.get(f"{side}offsetsbytimestamp")
    if by_partition is not None:
        name = f"{side}OffsetsByTimestamp"
        return Edges(default, {tp: Edge(timestamp_ms=ms) for tp, ms in _per_partition(name, by_partition)})
    if f"{side}timestamp" in given:
        return Edges(Edge(timestamp_ms=_number(given, f"{side}Timestamp", 1)))
    text = given.get(f"{side}offsets", "")
    if text in ("", "earliest", "latest"):
        return Edges({"": default, "earliest": Edge(EARLIEST), "latest": Edge(LATEST)}[text])
    return Edges(default, {tp: Edge(offset) for tp, offset in _per_partition(f"{side}Offsets", text)})


def _per_partition(name: str, text: str) -> list[tuple[TopicPartition, int]]:
    try:
        return [
            (TopicPartition(str(topic), int(partition)), int(value))
            for topic, partitions in json.loads(text).items()
            for partition, value in partitions.items()
        ]
    except (ValueError, AttributeError, TypeError):
        words = "" if "Timestamp" in name else "earliest, latest or "
        raise BadOption(f'{name}: {words}JSON {{"topic": {{"0": 42}}}} is expected') from None


def connection(given: Mapping[str, str], topics: list[str]) -> dict[str, Any]:
    """The arguments of `cluster.connect`."""
    return {
        "bootstrap_server": given.get("kafka.bootstrap.servers"),
        "topic": topics,
        "cluster_file": given.get("clusterfile"),
        "token_file": given.get("tokenfile"),
        "tokens": given.get("tokens"),
        "security": given.get("security"),
    }
