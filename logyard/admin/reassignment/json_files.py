"""The JSON files of kafka-reassign-partitions: read with its checks and error texts, written in its format.

{"version":1,"partitions":[{"topic":T,"partition":P,"replicas":[…],"log_dirs":["any"|path…]}]}
{"version":1,"topics":[{"topic":T}]}
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from logyard.broker.errors import LogyardError
from logyard.broker.model import TopicPartition

ANY_DIR = "any"
VERSION = 1


class BadReassignment(LogyardError):
    """A file or a list of brokers is invalid; the text says where."""


class Replica(NamedTuple):
    """One replica on one broker; its text is what Kafka's tool prints."""

    topic: str
    partition: int
    broker: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.broker}"


class Targets(NamedTuple):
    """The targets of partitions as written (a partition may occur twice), and of directories."""

    partitions: list[tuple[TopicPartition, tuple[int, ...]]]
    log_dirs: dict[Replica, str]


def parse_targets(text: str) -> Targets:
    """Read a file of targets without further checks, as verify and cancel do. Raises BadReassignment."""
    partitions: list[tuple[TopicPartition, tuple[int, ...]]] = []
    log_dirs: dict[Replica, str] = {}
    for entry in _entries(text, "partitions"):
        try:
            tp = TopicPartition(_text(entry["topic"]), _integer(entry["partition"]))
            replicas = tuple(_integer(broker) for broker in _list(entry["replicas"]))
            dirs = [_text(path) for path in _list(entry.get("log_dirs", [ANY_DIR] * len(replicas)))]
        except (KeyError, TypeError, ValueError):
            raise BadReassignment(
                f"in 'partitions', {json.dumps(entry)}: topic, partition and a list of replicas are expected"
            ) from None
        if len(dirs) != len(replicas):
            raise BadReassignment(
                f"Size of replicas list {list(replicas)} is different from size of log dirs list {dirs} "
                f"for partition {tp}"
            )
        partitions.append((tp, replicas))
        log_dirs.update(
            {Replica(*tp, broker): path for broker, path in zip(replicas, dirs, strict=True) if path != ANY_DIR}
        )
    return Targets(partitions, log_dirs)


def parse_execution(text: str) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[Replica, str]]:
    """Read a file of targets to execute. Raises BadReassignment with the text of Kafka's tool."""
    targets = parse_targets(text)
    if not targets.partitions:
        raise BadReassignment("Partition reassignment list cannot be empty")
    if any(not replicas for _, replicas in targets.partitions):
        raise BadReassignment("Partition replica list cannot be empty")
    repeated = repeats(tp for tp, _ in targets.partitions)
    if repeated:
        raise BadReassignment(
            f"Partition reassignment contains duplicate topic partitions: {','.join(map(str, repeated))}"
        )
    twice = [(tp, found) for tp, replicas in targets.partitions if (found := repeats(replicas))]
    if twice:
        named = ". ".join(f"{tp} contains multiple entries for {','.join(map(str, found))}" for tp, found in twice)
        raise BadReassignment(f"Partition replica lists may not contain duplicate entries: {named}")
    return dict(targets.partitions), targets.log_dirs


def parse_topics(text: str) -> list[str]:
    """Read a file of topics to move. Raises BadReassignment."""
    try:
        topics = [_text(entry["topic"]) for entry in _entries(text, "topics")]
    except (KeyError, TypeError, ValueError):
        raise BadReassignment("""in 'topics', entries such as {"topic": "flights"} are expected""") from None
    repeated = repeats(topics)
    if repeated:
        raise BadReassignment(f"List of topics to reassign contains duplicate entries: [{', '.join(repeated)}]")
    if not topics:
        raise BadReassignment("""no topic to move: {"version":1,"topics":[{"topic":"flights"}]} is expected""")
    return topics


def parse_brokers(text: str) -> list[int]:
    """Read `0,1,2`. Raises BadReassignment."""
    try:
        brokers = [int(broker) for broker in text.split(",")]
    except ValueError:
        raise BadReassignment(f"broker list {text!r}: ids such as 0,1,2 are expected") from None
    repeated = repeats(brokers)
    if repeated:
        raise BadReassignment(f"Broker list contains duplicate entries: [{', '.join(map(str, repeated))}]")
    return brokers


def render(partitions: Mapping[TopicPartition, Sequence[int]]) -> str:
    """Write targets (or the present replicas, for a rollback) as one line."""
    entries = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "replicas": list(replicas),
            "log_dirs": [ANY_DIR] * len(replicas),
        }
        for tp, replicas in sorted(partitions.items())
    ]
    return json.dumps({"version": VERSION, "partitions": entries}, separators=(",", ":"), ensure_ascii=False)


def repeats(values: Iterable[Any]) -> list[Any]:
    """Items that occur more than once, in the order of their first occurrence."""
    return [value for value, count in Counter(values).items() if count > 1]


def _entries(text: str, key: str) -> list[Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as problem:
        wanted = f"an object with 'version' and a list '{key}' is expected"
        raise BadReassignment(f"no valid JSON ({problem}): {wanted}") from None
    if not isinstance(content, dict):
        raise BadReassignment(f"a JSON object with 'version' and a list '{key}' is expected")
    if content.get("version", VERSION) != VERSION:
        raise BadReassignment(f"Not supported version field value {content['version']}")
    entries = content.get(key, [])
    if not isinstance(entries, list):
        raise BadReassignment(f"'{key}' is no list")
    return entries


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(value)
    return value


def _list(value: Any) -> list[Any]:
    """Not a text, whose letters would be its entries: "any" is no three directories."""
    if not isinstance(value, list):
        raise ValueError(value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(value)
    return value
