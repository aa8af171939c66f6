"""The three requests to brokers as the codec's field trees, and their responses as plain values.

Rule 1: the version is fixed by inter.broker.protocol.version, never negotiated (facts §22).
Rule 2: field names are those of Kafka's message schemas in snake case; the codec leaves out fields that a version does
not have.
Rule 3: below LeaderAndIsr 2, UpdateMetadata 5 and StopReplica 1 partitions are one list, not grouped by topic.
"""

from collections.abc import Mapping
from typing import Any

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
from logyard.broker.protocol.writers import Shared, SharedItem, SharedItems

LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 4, 5, 6

GROUPED_LEADER_AND_ISR, GROUPED_UPDATE_METADATA = 2, 5

_PROTOCOL_IDS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}

Wire = tuple[int, int, dict[str, Any]]
"""Api key, version, fields."""


class Encoder:
    """Turns requests into field trees; parts that the requests of one batch share are encoded once."""

    def __init__(self, level: ProtocolLevel, inter_broker_listener: str | None = None) -> None:
        self._level = level
        self._listener = inter_broker_listener
        self._last: tuple[UpdateMetadataRequest, dict[str, Any]] | None = None
        # By identity, with the entry itself so that its id is not reused; emptied when the batch's next kind begins.
        self._entries: dict[int, tuple[LeaderAndIsrPartition, SharedItem]] = {}

    def encode(self, request: BrokerRequest) -> Wire:
        """Return (api key, version, fields) of one request."""
        if not isinstance(request, LeaderAndIsrRequest):
            self._entries.clear()
        match request:
            case LeaderAndIsrRequest():
                return LEADER_AND_ISR, self._level.leader_and_isr_version, self._leader_and_isr(request)
            case UpdateMetadataRequest():
                return UPDATE_METADATA, self._level.update_metadata_version, self._update_metadata(request)
            case StopReplicaRequest():
                return STOP_REPLICA, self._level.stop_replica_version, _stop_replica(request)

    def _leader_and_isr(self, request: LeaderAndIsrRequest) -> dict[str, Any]:
        if self._level.leader_and_isr_version < GROUPED_LEADER_AND_ISR:
            return {
                **_head(request),
                "ungrouped_partition_states": SharedItems(map(self._entry, request.partitions)),
                "live_leaders": [self._live_leader(broker) for broker in request.live_leaders],
            }
        topics: dict[str, SharedItems] = {}
        for entry in request.partitions:
            entries = topics.get(entry.tp.topic)
            if entries is None:
                entries = topics[entry.tp.topic] = SharedItems()
            entries.append(self._entry(entry))
        return {
            **_head(request),
            "type": request.type,
            "topic_states": [
                {
                    "topic_name": name,
                    "topic_id": request.topic_ids.get(name, ZERO_TOPIC_ID),
                    "partition_states": entries,
                }
                for name, entries in topics.items()
            ],
            "live_leaders": [self._live_leader(broker) for broker in request.live_leaders],
        }

    def _entry(self, entry: LeaderAndIsrPartition) -> SharedItem:
        known = self._entries.get(id(entry))
        if known is None:
            known = self._entries[id(entry)] = (entry, SharedItem(_leader_and_isr_partition(entry)))
        return known[1]

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
            self._last = (request, _shared_metadata(request) if grouped else _ungrouped_metadata(request))
        return {**_head(request), "type": request.type, **self._last[1]}


def _same_batch(one: UpdateMetadataRequest, other: UpdateMetadataRequest) -> bool:
    """Whether both lists are the same objects (an empty list of partitions alone would not tell)."""
    return one.partitions is other.partitions and one.live_brokers is other.live_brokers


def _head(request: BrokerRequest) -> dict[str, Any]:
    return {
        "controller_id": request.controller_id,
        "controller_epoch": request.controller_epoch,
        "broker_epoch": request.broker_epoch,
    }


def _leader_and_isr_partition(entry: LeaderAndIsrPartition) -> dict[str, Any]:
    state = entry.state
    return {
        "topic_name": entry.tp.topic,
        "partition_index": entry.tp.partition,
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
        "partition_epoch": state.partition_epoch,
        "replicas": list(entry.assignment.replicas),
        "adding_replicas": list(entry.assignment.adding),
        "removing_replicas": list(entry.assignment.removing),
        "is_new": entry.is_new,
        "leader_recovery_state": int(state.recovering),
    }


def _shared_metadata(request: UpdateMetadataRequest) -> dict[str, Any]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for entry in request.partitions:
        topics.setdefault(entry.tp.topic, []).append(_metadata_partition(entry))
    return {
        "topic_states": Shared(
            {"topic_name": name, "topic_id": request.topic_ids.get(name, ZERO_TOPIC_ID), "partition_states": entries}
            for name, entries in topics.items()
        ),
        "live_brokers": [_live_broker(broker) for broker in request.live_brokers],
    }


def _ungrouped_metadata(request: UpdateMetadataRequest) -> dict[str, Any]:
    return {
        "ungrouped_partition_states": Shared(_metadata_partition(entry) for entry in request.partitions),
        "live_brokers": [{**_live_broker(broker), **_plain_address(broker)} for broker in request.live_brokers],
    }


def _plain_address(broker: BrokerInfo) -> dict[str, Any]:
    """Version 0 has one PLAINTEXT address; a broker without one gets an empty address."""
    plain = next((e for e in broker.endpoints if e.protocol == "PLAINTEXT"), None)
    return {"v0_host": plain.host if plain else "", "v0_port": plain.port if plain else -1}


def _metadata_partition(entry: MetadataPartition) -> dict[str, Any]:
    state = entry.state
    return {
        "topic_name": entry.tp.topic,
        "partition_index": entry.tp.partition,
        "controller_epoch": state.controller_epoch,
        "leader": entry.leader,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
        "zk_version": state.partition_epoch,
        "replicas": list(entry.replicas),
        "offline_replicas": list(entry.offline),
    }


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
