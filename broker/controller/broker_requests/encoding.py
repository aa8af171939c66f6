"""The three requests to brokers as the codec's field trees, and their responses as plain values.

Rule 1: the version is fixed by inter.broker.protocol.version, never negotiated (facts §22).
Rule 2: field names are those of Kafka's message schemas in snake case; the codec leaves out fields that a version does
not have.
Rule 3: below LeaderAndIsr 2, UpdateMetadata 5 and StopReplica 1 partitions are one list, not grouped by topic.
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from logyard.broker.controller.broker_requests.batch import (
    BrokerRequest,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    MetadataPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from logyard.broker.controller.events import Event, LeaderAndIsrAnswered, ReplicasDeleted, UpdateMetadataAnswered
from logyard.broker.controller.settings import ProtocolLevel
from logyard.broker.errors import ErrorCode
from logyard.broker.model import ZERO_TOPIC_ID, BrokerInfo, TopicId, TopicPartition
from logyard.broker.portions import AT_ONCE
from logyard.broker.protocol import codec
from logyard.broker.protocol.writers import Prepared, Shared, StructWriter

LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 4, 5, 6

GROUPED_LEADER_AND_ISR, GROUPED_UPDATE_METADATA = 2, 5

_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

Wire = tuple[int, int, dict[str, Any]]
"""Api key, version, fields."""

One = TypeVar("One")


class Encoder:
    """Turns requests into field trees; parts that the requests of one batch share are encoded once."""

    def __init__(self, level: ProtocolLevel, inter_broker_listener: str | None = None) -> None:
        self._level = level
        self._listener = inter_broker_listener
        self._last: tuple[UpdateMetadataRequest, dict[str, Any]] | None = None
        self._written: _Written = {}
        grouped = level.leader_and_isr_version >= GROUPED_LEADER_AND_ISR
        self._write_leader_and_isr = codec.request_struct_writer(
            LEADER_AND_ISR, level.leader_and_isr_version, _path(grouped), _LEADER_AND_ISR_VALUES
        )
        grouped = level.update_metadata_version >= GROUPED_UPDATE_METADATA
        self._write_metadata = codec.request_struct_writer(
            UPDATE_METADATA, level.update_metadata_version, _path(grouped), _METADATA_VALUES
        )

    def encode(self, request: BrokerRequest) -> Wire:
        """Return (api key, version, fields) of one request."""
        if not isinstance(request, LeaderAndIsrRequest):
            self._written = {}  # the batch's last of them has been encoded, or waits with those before it
        match request:
            case LeaderAndIsrRequest():
                return LEADER_AND_ISR, self._level.leader_and_isr_version, self._leader_and_isr(request)
            case UpdateMetadataRequest():
                return UPDATE_METADATA, self._level.update_metadata_version, self._update_metadata(request)
            case StopReplicaRequest():
                return STOP_REPLICA, self._level.stop_replica_version, _stop_replica(request)

    def write_ahead(self, fields: Mapping[str, Any]) -> Iterator[int]:
        """Encode the partitions of a request in portions, so that this is done when the request is encoded.

        Yields how many each portion had. The levels before topics (rule 3) are not written ahead.
        """
        for topic in fields.get("topic_states", ()):
            states = topic["partition_states"]
            if isinstance(states, _LeaderAndIsrPartitions | _MetadataPartitions) and not states.is_written:
                yield from states.write_ahead()

    def _leader_and_isr(self, request: LeaderAndIsrRequest) -> dict[str, Any]:
        if self._level.leader_and_isr_version < GROUPED_LEADER_AND_ISR:
            return {
                **_head(request),
                "ungrouped_partition_states": self._entries(request.partitions),
                "live_leaders": [self._live_leader(broker) for broker in request.live_leaders],
            }
        topics: dict[str, list[LeaderAndIsrPartition]] = {}
        for entry in request.partitions:
            topics.setdefault(entry.tp.topic, []).append(entry)
        return {
            **_head(request),
            "type": request.type,
            "topic_states": [
                {
                    "topic_name": name,
                    "topic_id": request.topic_ids.get(name, ZERO_TOPIC_ID),
                    "partition_states": self._entries(entries),
                }
                for name, entries in topics.items()
            ],
            "live_leaders": [self._live_leader(broker) for broker in request.live_leaders],
        }

    def _entries(self, entries: Sequence[LeaderAndIsrPartition]) -> Prepared:
        return _LeaderAndIsrPartitions(entries, self._write_leader_and_isr, self._written)

    def _live_leader(self, broker: BrokerInfo) -> dict[str, Any]:
        endpoint = broker.endpoint(self._listener) if self._listener is not None else None
        chosen = endpoint or (broker.endpoints[0] if broker.endpoints else None)
        return {
            "broker_id": broker.id,
            "host_name": chosen.host if chosen else "",
            "port": chosen.port if chosen else -1,
        }

    def _update_metadata(self, request: UpdateMetadataRequest) -> dict[str, Any]:
        if self._last is None or not _same_batch(self._last[0], request):
            grouped = self._level.update_metadata_version >= GROUPED_UPDATE_METADATA
            self._last = (request, self._grouped_metadata(request) if grouped else self._ungrouped_metadata(request))
        return {**_head(request), "type": request.type, **self._last[1]}

    def _grouped_metadata(self, request: UpdateMetadataRequest) -> dict[str, Any]:
        topics: dict[str, list[MetadataPartition]] = {}
        for entry in request.partitions:
            topics.setdefault(entry.tp.topic, []).append(entry)
        return {
            "topic_states": Shared(
                {
                    "topic_name": name,
                    "topic_id": request.topic_ids.get(name, ZERO_TOPIC_ID),
                    "partition_states": _MetadataPartitions(entries, self._write_metadata),
                }
                for name, entries in topics.items()
            ),
            "live_brokers": [_live_broker(broker) for broker in request.live_brokers],
        }

    def _ungrouped_metadata(self, request: UpdateMetadataRequest) -> dict[str, Any]:
        return {
            "ungrouped_partition_states": _MetadataPartitions(request.partitions, self._write_metadata),
            "live_brokers": [{**_live_broker(broker), **_plain_address(broker)} for broker in request.live_brokers],
        }


def _same_batch(one: UpdateMetadataRequest, other: UpdateMetadataRequest) -> bool:
    """Whether both lists are the same objects (an empty list of partitions alone would not tell)."""
    return one.partitions is other.partitions and one.live_brokers is other.live_brokers


def _head(request: BrokerRequest) -> dict[str, Any]:
    return {
        "controller_id": request.controller_id,
        "controller_epoch": request.controller_epoch,
        "broker_epoch": request.broker_epoch,
    }


# The values of a partition's struct, as `_LeaderAndIsrPartitions` and `_MetadataPartitions` give them.
_VALUES_OF_BOTH = ("topic_name", "partition_index", "controller_epoch", "leader", "leader_epoch", "isr")
_LEADER_AND_ISR_VALUES = (
    *_VALUES_OF_BOTH,
    "partition_epoch",
    "replicas",
    "adding_replicas",
    "removing_replicas",
    "is_new",
    "leader_recovery_state",
)
_METADATA_VALUES = (*_VALUES_OF_BOTH, "zk_version", "replicas", "offline_replicas")

_Written = dict[int, tuple[LeaderAndIsrPartition, bytes]]
"""The encoded entries of a batch by identity, with the entry itself so that its id is not reused."""


def _path(grouped: bool) -> tuple[str, ...]:
    return ("topic_states", "partition_states") if grouped else ("ungrouped_partition_states",)


def _in_portions(
    entries: Sequence[One], append: Callable[[Sequence[One], bytearray], None]
) -> Generator[int, None, bytes]:
    """Encode entries by `append`, portion by portion: yields how many each has, returns the bytes of all."""
    out = bytearray()
    for start in range(0, len(entries), AT_ONCE):
        portion = entries[start : start + AT_ONCE]
        append(portion, out)
        yield len(portion)
    return bytes(out)


class _LeaderAndIsrPartitions(Prepared):
    """Entries of one request; those that other requests of the batch have too are encoded once."""

    __slots__ = ("_ahead", "_entries", "_write", "_written")

    def __init__(self, entries: Sequence[LeaderAndIsrPartition], write: StructWriter, written: _Written) -> None:
        self._entries = entries
        self._write = write
        self._written = written
        self._ahead = b""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_written(self) -> bool:
        return bool(self._ahead)

    def write_ahead(self) -> Iterator[int]:
        self._ahead = yield from _in_portions(self._entries, self._append)

    def append_to(self, out: bytearray) -> None:
        if self._ahead:
            out += self._ahead
        else:
            self._append(self._entries, out)

    def _append(self, entries: Sequence[LeaderAndIsrPartition], out: bytearray) -> None:
        write, written = self._write, self._written
        for entry in entries:
            known = written.get(id(entry))
            if known is not None:
                out += known[1]
                continue
            (topic, number), state, assignment, is_new = entry
            leader, leader_epoch, isr, controller_epoch, partition_epoch, recovering = state
            begin = len(out)
            write(
                out,
                topic,
                number,
                controller_epoch,
                leader,
                leader_epoch,
                isr,
                partition_epoch,
                assignment.replicas,
                assignment.adding,
                assignment.removing,
                is_new,
                recovering,
            )
            written[id(entry)] = (entry, bytes(out[begin:]))


class _MetadataPartitions(Prepared):
    """Entries that go to all brokers: encoded once."""

    __slots__ = ("_entries", "_write", "_written")

    def __init__(self, entries: Sequence[MetadataPartition], write: StructWriter) -> None:
        self._entries = entries
        self._write = write
        self._written = b""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_written(self) -> bool:
        return bool(self._written)

    def write_ahead(self) -> Iterator[int]:
        self._written = yield from _in_portions(self._entries, self._append_anew)

    def append_to(self, out: bytearray) -> None:
        if not self._written:
            begin = len(out)
            self._append_anew(self._entries, out)
            self._written = bytes(out[begin:])
        else:
            out += self._written

    def _append_anew(self, entries: Sequence[MetadataPartition], out: bytearray) -> None:
        write = self._write
        for (topic, number), state, leader, replicas, offline in entries:
            _, leader_epoch, isr, controller_epoch, partition_epoch, _ = state
            write(out, topic, number, controller_epoch, leader, leader_epoch, isr, partition_epoch, replicas, offline)


def _plain_address(broker: BrokerInfo) -> dict[str, Any]:
    """Version 0 has one PLAINTEXT address; a broker without one gets an empty address."""
    plain = next((e for e in broker.endpoints if e.protocol == "PLAINTEXT"), None)
    return {"v0_host": plain.host if plain else "", "v0_port": plain.port if plain else -1}


def _live_broker(broker: BrokerInfo) -> dict[str, Any]:
    return {
        "id": broker.id,
        "endpoints": [
            {
                "port": endpoint.port,
                "host": endpoint.host,
                "listener": endpoint.listener,
                "security_protocol": _PROTOCOL_IDS.get(endpoint.protocol, 0),
            }
            for endpoint in broker.endpoints
        ],
        "rack": broker.rack,
    }


def _stop_replica(request: StopReplicaRequest) -> dict[str, Any]:
    """Version 3+ has a deletion flag per partition; lower versions have one for all, so such a request must be
    uniform."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for entry in request.partitions:
        topics.setdefault(entry.tp.topic, []).append(
            {
                "partition_index": entry.tp.partition,
                "leader_epoch": entry.leader_epoch,
                "delete_partition": entry.delete,
            }
        )
    return {
        **_head(request),
        "delete_partitions": any(entry.delete for entry in request.partitions),
        "ungrouped_partitions": [
            {"topic_name": entry.tp.topic, "partition_index": entry.tp.partition} for entry in request.partitions
        ],
        "topics": [
            {"name": name, "partition_indexes": [e["partition_index"] for e in entries]}
            for name, entries in topics.items()
        ],
        "topic_states": [{"topic_name": name, "partition_states": entries} for name, entries in topics.items()],
    }


def answered(request: BrokerRequest, response: Any) -> Event | None:
    """Turn a broker's decoded response into an event; None if the controller has nothing to do."""
    error = error_code(response.error_code)
    match request:
        case LeaderAndIsrRequest():
            codes = _leader_and_isr_codes(request, response)
            return LeaderAndIsrAnswered(request.broker_id, request.broker_epoch, error, codes)
        case UpdateMetadataRequest():
            return None if error is ErrorCode.NONE else UpdateMetadataAnswered(request.broker_id, error)
        case StopReplicaRequest():
            if not request.topic_deletions:
                return None
            said = {
                TopicPartition(e.topic_name, e.partition_index): error_code(e.error_code)
                for e in response.partition_errors
            }
            # A partition missing in the response does not exist on the broker (or the whole request was refused).
            codes = {tp: said.get(tp, error) for tp in request.topic_deletions}
            return ReplicasDeleted(request.broker_id, error, codes)


_CODES = {code.value: code for code in ErrorCode}


def error_code(number: int) -> ErrorCode:
    """Return the code by its number; UNKNOWN_SERVER_ERROR for an unknown number."""
    return _CODES.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)


def _leader_and_isr_codes(request: LeaderAndIsrRequest, response: Any) -> dict[TopicPartition, ErrorCode]:
    """Versions 5+ answer by topic id; topics without one cannot be told apart and are left out."""
    codes = {
        TopicPartition(e.topic_name, e.partition_index): error_code(e.error_code)
        for e in getattr(response, "partition_errors", None) or ()
    }
    names: Mapping[TopicId, str] = {topic_id: name for name, topic_id in request.topic_ids.items()}
    for topic in getattr(response, "topics", None) or ():
        name = names.get(topic.topic_id)
        if name is not None:
            for e in topic.partition_errors:
                codes[TopicPartition(name, e.partition_index)] = error_code(e.error_code)
    return codes
