"""The three requests to brokers as the codec's field trees, and their responses as plain values.

Rule 1: the version is fixed by inter.broker.protocol.version, never negotiated (facts §22).
Rule 2: field names are those of Kafka's message schemas in snake case; the codec leaves out fields that a version does
not have.
Rule 3: below LeaderAndIsr 2, UpdateMetadata 5 and StopReplica 1 partitions are one list, not grouped by topic.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from logyard.broker.controller.broker_requests import partition_states
from logyard.broker.controller.broker_requests.batch import (
    STOP_REPLICA_WITH_FLAGS,
    BrokerRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from logyard.broker.controller.broker_requests.partition_states import (
    Known,
    LeaderAndIsrPartitions,
    MetadataPartitions,
    PartitionCodes,
    PartitionStates,
    StoppedNumbers,
    StoppedPartitions,
)
from logyard.broker.controller.events import Event, LeaderAndIsrAnswered, ReplicasDeleted, UpdateMetadataAnswered
from logyard.broker.controller.settings import ProtocolLevel
from logyard.broker.errors import ErrorCode
from logyard.broker.model import BrokerInfo

LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 4, partition_states.STOP_REPLICA, 6

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
        self._known: Known = {}
        self._order_writers = partition_states.writers(
            LEADER_AND_ISR,
            level.leader_and_isr_version,
            partition_states.LEADER_AND_ISR_VALUES,
            grouped=level.leader_and_isr_version >= GROUPED_LEADER_AND_ISR,
        )
        self._stop_writers = partition_states.stop_writers(level.stop_replica_version)
        self._metadata_writers = partition_states.writers(
            UPDATE_METADATA,
            level.update_metadata_version,
            partition_states.METADATA_VALUES,
            grouped=level.update_metadata_version >= GROUPED_UPDATE_METADATA,
        )

    def encode(self, request: BrokerRequest) -> Wire:
        """Return (api key, version, fields) of one request."""
        if not isinstance(request, LeaderAndIsrRequest):
            self._known = {}  # the batch's last of them has been encoded, or waits with those before it
        match request:
            case LeaderAndIsrRequest():
                return LEADER_AND_ISR, self._level.leader_and_isr_version, self._leader_and_isr(request)
            case UpdateMetadataRequest():
                return UPDATE_METADATA, self._level.update_metadata_version, self._update_metadata(request)
            case StopReplicaRequest():
                return STOP_REPLICA, self._level.stop_replica_version, self._stop_replica(request)

    def write_ahead(self, fields: Mapping[str, Any]) -> Iterator[int]:
        """Encode the partitions of a request in portions, so that this is done when the request is encoded.

        Yields what each portion cost: 1 for a partition or a topic.
        """
        for states in fields.values():
            if isinstance(states, PartitionStates):
                yield from states.write_ahead()

    def _leader_and_isr(self, request: LeaderAndIsrRequest) -> dict[str, Any]:
        states = LeaderAndIsrPartitions(request.partitions, request.topic_ids, self._order_writers, self._known)
        grouped = self._level.leader_and_isr_version >= GROUPED_LEADER_AND_ISR
        return {
            **_head(request),
            "type": request.type,
            "topic_states" if grouped else "ungrouped_partition_states": states,
            "live_leaders": [self._live_leader(broker) for broker in request.live_leaders],
        }

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
            self._last = (request, self._metadata_of(request))
        return {**_head(request), "type": request.type, **self._last[1]}

    def _metadata_of(self, request: UpdateMetadataRequest) -> dict[str, Any]:
        states = MetadataPartitions(request.partitions, request.topic_ids, self._metadata_writers)
        if self._level.update_metadata_version >= GROUPED_UPDATE_METADATA:
            return {"topic_states": states, "live_brokers": [_live_broker(broker) for broker in request.live_brokers]}
        return {
            "ungrouped_partition_states": states,
            "live_brokers": [{**_live_broker(broker), **_plain_address(broker)} for broker in request.live_brokers],
        }

    def _stop_replica(self, request: StopReplicaRequest) -> dict[str, Any]:
        """Versions below 3 have one deletion flag for all partitions: such a request must be uniform."""
        version, stopped = self._level.stop_replica_version, request.partitions
        fields: dict[str, Any] = _head(request)
        if version >= STOP_REPLICA_WITH_FLAGS:
            return fields | {"topic_states": StoppedPartitions(stopped, self._stop_writers)}
        array = "topics" if version >= partition_states.GROUPED_STOP_REPLICA else "ungrouped_partitions"
        numbers = StoppedNumbers(stopped, self._stop_writers)
        return fields | {"delete_partitions": any(entry.delete for entry in stopped), array: numbers}


def _same_batch(one: UpdateMetadataRequest, other: UpdateMetadataRequest) -> bool:
    """Whether both lists are the same objects (an empty list of partitions alone would not tell)."""
    return one.partitions is other.partitions and one.live_brokers is other.live_brokers


def _head(request: BrokerRequest) -> dict[str, Any]:
    return {
        "controller_id": request.controller_id,
        "controller_epoch": request.controller_epoch,
        "broker_epoch": request.broker_epoch,
    }


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


def answered(request: BrokerRequest, response: Any) -> Event | None:
    """Turn a broker's decoded response into an event; None if the controller has nothing to do."""
    error = ErrorCode(response.error_code)
    match request:
        case LeaderAndIsrRequest():
            return LeaderAndIsrAnswered(request.broker_id, request.broker_epoch, error, PartitionCodes(response))
        case UpdateMetadataRequest():
            return None if error is ErrorCode.NONE else UpdateMetadataAnswered(request.broker_id, error)
        case StopReplicaRequest():
            if not request.topic_deletions:
                return None
            return ReplicasDeleted(request.broker_id, error, request.topic_deletions, PartitionCodes(response))
