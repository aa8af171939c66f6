"""/brokers/topics/T: a topic's id and the replicas of its partitions; reads versions 1 to 3 (facts §1)."""

from functools import lru_cache

from logyard.broker.errors import CorruptData
from logyard.broker.model import Assignment, TopicAssignment, TopicId, topic_id_from_text, topic_id_text
from logyard.broker.znodes import fields
from logyard.broker.znodes.paths import TOPICS

PATH = TOPICS

VERSION_REASSIGNING = 2  # Kafka 2.4: adding_replicas, removing_replicas
VERSION_TOPIC_ID = 3  # Kafka 2.8 (inter.broker.protocol.version 2.8): topic_id


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """Return the path above a topic's partition znodes; only the controller creates it, empty."""
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    """Return the path above a state znode; only the controller creates it, empty."""
    return f"{TOPICS}/{topic}/partitions/{partition}"


def encode(assignment: TopicAssignment, version: int = VERSION_TOPIC_ID) -> bytes:
    """Write a topic znode. Below version 3 it has no topic id, below 2 no running reassignment.

    Kafka 3.9 writes version 3 at all protocol levels, without an id below 2.8; older brokers ignore the version.
    """
    ordered = sorted(assignment.partitions.items())
    content: dict[str, object] = {
        "version": version,
        "partitions": {str(partition): list(a.replicas) for partition, a in ordered},
    }
    if version >= VERSION_REASSIGNING:
        content["adding_replicas"] = {str(p): list(a.adding) for p, a in ordered if a.adding}
        content["removing_replicas"] = {str(p): list(a.removing) for p, a in ordered if a.removing}
    if version >= VERSION_TOPIC_ID and assignment.topic_id is not None:
        content["topic_id"] = topic_id_text(assignment.topic_id)
    return fields.dump(content)


def decode(data: bytes, path: str = f"{TOPICS}/?") -> TopicAssignment:
    """Read any version; partitions are in the order of their numbers. Raises CorruptData."""
    content = fields.Fields.parse(path, data)
    partitions = content.object("partitions")
    adding = content.optional_object("adding_replicas")
    removing = content.optional_object("removing_replicas")
    numbers = {_partition(path, key): key for key in partitions.names()}
    moving = {*adding.names(), *removing.names()}
    found: dict[int, Assignment] = {}
    for number in sorted(numbers):
        key = numbers[number]
        adds = adding.integers(key) if key in moving and adding.has(key) else ()
        removes = removing.integers(key) if key in moving and removing.has(key) else ()
        found[number] = _assignment(partitions.integers(key), adds, removes)
    return TopicAssignment(found, _topic_id(content))


@lru_cache(4096)
def _assignment(replicas: tuple[int, ...], adding: tuple[int, ...], removing: tuple[int, ...]) -> Assignment:
    """A cluster has few different ones, which its partitions share."""
    return Assignment(replicas, adding, removing)


def _partition(path: str, key: str) -> int:
    try:
        number = int(key)
        if number >= 0 and str(number) == key:
            return number
    except ValueError:  # also of thousands of digits
        pass
    raise CorruptData(f"znode {path}: a partition number is expected as key of 'partitions', found {key[:60]!r}")


def _topic_id(content: fields.Fields) -> TopicId | None:
    text = content.optional_text("topic_id")
    if text is None:
        return None
    try:
        return topic_id_from_text(text)
    except ValueError:
        raise content.wrong("topic_id", "22 base64url characters of a uuid") from None
