"""What the brokers would refuse about a change of a topic: they are asked with validate-only, which changes nothing."""

from dataclasses import dataclass

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.ports import ClusterClient
from logyard.plugins.logyard_ui.responses.optional_parts import error_line

CREATE, ALTER, EXPAND = "create_topic", "alter_topic", "expand_topic"

# The part of a change that an error is about; of every other error it is the whole change.
_PARTS = {
    ErrorCode.TOPIC_ALREADY_EXISTS: "topic",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "topic",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "topic",
    ErrorCode.INVALID_PARTITIONS: "partitions",
    ErrorCode.INVALID_REPLICATION_FACTOR: "replication_factor",
    ErrorCode.INVALID_CONFIG: "configs",
}


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A topic to be created, altered or given more partitions. None: the broker's default."""

    action: str
    topic: str
    partitions: int | None = None
    replication_factor: int | None = None
    settings: tuple[tuple[str, str], ...] = ()
    unset: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """`part`: topic, partitions, replication_factor or configs; empty: the change as a whole."""

    part: str
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the brokers said: the first thing that they would refuse, or None."""

    refusal: Refusal | None


def check(client: ClusterClient, change: TopicChange) -> Verdict:
    """Ask the brokers. Raises ClusterUnreachable."""
    try:
        _ask(client, change)
    except ApiError as answer:
        return Verdict(Refusal(_PARTS.get(answer.code, ""), error_line(answer)))
    return Verdict(None)


def _ask(client: ClusterClient, change: TopicChange) -> None:
    if change.action == CREATE:
        topic = NewTopic(
            change.topic,
            -1 if change.partitions is None else change.partitions,
            -1 if change.replication_factor is None else change.replication_factor,
            dict(change.settings),
        )
        client.create_topic(topic, validate_only=True)
    elif change.action == EXPAND:
        client.add_partitions(change.topic, change.partitions or 0, validate_only=True)
    else:
        client.alter_topic_configs(change.topic, dict(change.settings), change.unset, validate_only=True)
