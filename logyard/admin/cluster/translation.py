"""kafka-python's answers as our own values: plain dicts and numbers in, snapshots and ApiErrors out."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from logyard.admin.cluster.snapshot import (
    BrokerNode,
    ClusterSnapshot,
    ConfigValue,
    DirectorySpace,
    GroupView,
    PartitionView,
    ReplicaSize,
    TopicView,
)
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import ZERO_TOPIC_ID, Assignment, TopicId, TopicPartition, topic_id_text
from logyard.login.meanings import meaning, of_library

# ConfigEntry.ConfigSource.
_SOURCES = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
}


def snapshot(
    metadata: Mapping[str, Any], reassignments: Mapping[TopicPartition, Assignment] | None, taken_at_ms: int
) -> ClusterSnapshot:
    """Translate a Metadata response; topics with an error are left out, unknown ones are in `missing`."""
    found = [entry for entry in metadata["topics"] if entry["error_code"] == 0]
    return ClusterSnapshot(
        cluster_id=metadata.get("cluster_id") or "",
        controller=metadata["controller_id"],
        brokers={
            b["node_id"]: BrokerNode(b["node_id"], b["host"], b["port"], b.get("rack")) for b in metadata["brokers"]
        },
        topics={entry["name"]: topic_view(entry) for entry in found},
        taken_at_ms=taken_at_ms,
        reassignments=reassignments,
        missing=tuple(unknown(metadata)),
    )


def unknown(metadata: Mapping[str, Any]) -> list[str]:
    """The topics that a Metadata response says do not exist."""
    return sorted(entry["name"] for entry in metadata["topics"] if _is_unknown(entry))


def settled(metadata: Mapping[str, Any], told: Mapping[str, Any] | None) -> dict[str, Any]:
    """A Metadata response in which what the witnesses say of unknown topics replaces them; None: they say nothing."""
    kept = [entry for entry in metadata["topics"] if not _is_unknown(entry)]
    return {**metadata, "topics": [*kept, *(told["topics"] if told is not None else ())]}


def joined(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several brokers' Metadata responses as one: what one of them knows exists."""
    best: dict[str, Mapping[str, Any]] = {}
    for entry in (entry for answer in answers for entry in answer["topics"]):
        before = best.get(entry["name"])
        if before is None or _is_unknown(before) or (before["error_code"] and not entry["error_code"]):
            best[entry["name"]] = entry
    brokers = {broker["node_id"]: broker for answer in answers for broker in answer["brokers"]}
    return {**answers[0], "brokers": list(brokers.values()), "topics": list(best.values())}


def disputed(answers: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names under which several brokers' Metadata responses have topics with different ids."""
    ids: dict[str, set[TopicId]] = {}
    for entry in (entry for answer in answers for entry in answer["topics"]):
        if (topic_id := _topic_id(entry)) is not None:
            ids.setdefault(entry["name"], set()).add(topic_id)
    return sorted(name for name, known in ids.items() if len(known) > 1)


def _topic_id(entry: Mapping[str, Any]) -> TopicId | None:
    given = entry.get("topic_id")  # its to_dict makes a text of the uuid
    topic_id = given if given is None or isinstance(given, TopicId) else TopicId(str(given))
    return None if topic_id == ZERO_TOPIC_ID else topic_id


def _is_unknown(entry: Mapping[str, Any]) -> bool:
    return bool(entry["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def refuse_silence(response: Any) -> None:
    """Raise the ApiError of a DescribeLogDirs response without directories, which every broker has.

    Below version 3 it has no error: it is then without directories because of a missing right, as Java's client says.
    """
    if not response.results:
        refuse(response.error_code or ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)


def replica_sizes(answers: Iterable[Mapping[str, Any]]) -> list[ReplicaSize]:
    """DescribeLogDirs responses; directories that are offline have no sizes."""
    return [
        ReplicaSize(
            broker=answer["broker"],
            log_dir=log_dir["log_dir"],
            tp=TopicPartition(topic["name"], p["partition_index"]),
            size=p["partition_size"],
            offset_lag=p["offset_lag"],
            is_future=p["is_future_key"],
        )
        for answer in answers
        for log_dir in answer["log_dirs"]
        if log_dir["error_code"] == 0
        for topic in log_dir["topics"]
        for p in topic["partitions"]
    ]


def directories(answers: Iterable[Mapping[str, Any]]) -> list[DirectorySpace]:
    """DescribeLogDirs responses; before version 4, and where a broker does not know, bytes are None."""
    return [
        DirectorySpace(
            answer["broker"],
            log_dir["log_dir"],
            _known_bytes(log_dir.get("total_bytes")),
            _known_bytes(log_dir.get("usable_bytes")),
            log_dir["error_code"] == 0,
        )
        for answer in answers
        for log_dir in answer["log_dirs"]
    ]


def _known_bytes(value: int | None) -> int | None:
    return None if value is None or value < 0 else value


def groups(described: Mapping[str, Mapping[str, Any]]) -> list[GroupView]:
    """DescribeGroups responses, whose members' assignments are decoded where they are of the consumer protocol."""
    found = []
    for group, described_as in sorted(described.items()):
        members = described_as.get("members") or ()
        state, kind = str(described_as.get("group_state", "")), str(described_as.get("protocol_type", ""))
        topics = {topic for member in members for topic in _assigned_topics(member.get("member_assignment"))}
        found.append(GroupView(group, state, len(members), kind, tuple(sorted(topics))))
    return found


def _assigned_topics(assignment: Any) -> list[str]:
    if not isinstance(assignment, Mapping):  # bytes of another protocol
        return []
    return [str(entry["topic"]) for entry in assignment.get("assigned_partitions") or ()]


def configs(entries: Iterable[Any]) -> dict[str, ConfigValue]:
    """The settings of one result of a DescribeConfigs response, by name."""
    return {
        e.name: ConfigValue(e.value, source(e.config_source), bool(e.read_only), bool(e.is_sensitive), _default(e))
        for e in entries
    }


def source(number: int) -> str:
    """Kafka's name of where a value comes from."""
    return _SOURCES.get(number, "UNKNOWN")


def _default(entry: Any) -> str | None:
    """The default among the places that an entry's value could come from; they are told only if they were asked for."""
    found: list[str | None] = [one.value for one in entry.synonyms or () if source(one.source) == "DEFAULT_CONFIG"]
    return found[0] if found else None


def topic_view(entry: Mapping[str, Any]) -> TopicView:
    topic_id = _topic_id(entry)
    partitions = [
        PartitionView(
            partition=p["partition_index"],
            leader=p["leader_id"],
            replicas=tuple(p["replica_nodes"]),
            isr=tuple(p["isr_nodes"]),
            leader_epoch=p.get("leader_epoch", -1),
        )
        for p in entry["partitions"]
    ]
    return TopicView(
        name=entry["name"],
        partitions=tuple(sorted(partitions, key=lambda p: p.partition)),
        topic_id=None if topic_id is None else topic_id_text(topic_id),
        internal=bool(entry.get("is_internal")),
    )


def problem(number: int, message: str | None) -> ApiError | None:
    """The error of one entry of a response; None if it has none."""
    return ApiError(ErrorCode(number), message or meaning(number)) if number else None


def refuse(number: int, message: str | None, *, unless: ErrorCode | None = None) -> None:
    """Raise the error of one entry of a response, except the one that the caller handles by waiting."""
    if number and number != unless:
        raise ApiError(ErrorCode(number), message or meaning(number))


def api_error(theirs: Any) -> ApiError:
    """Translate a BrokerResponseError of kafka-python."""
    return ApiError(ErrorCode(theirs.errno), of_library(theirs))
