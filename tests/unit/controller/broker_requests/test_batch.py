"""Merging per broker, and the requests on the wire at both protocol levels."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from logyard.broker.config.inter_broker_protocol import InterBrokerProtocol
from logyard.broker.controller.broker_requests.batch import (
    LeaderAndIsrRequest,
    RequestBatch,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from logyard.broker.controller.broker_requests.encoding import Encoder, answered
from logyard.broker.controller.context import ControllerContext, Partition, Topic
from logyard.broker.controller.events import LeaderAndIsrAnswered, ReplicasDeleted, UpdateMetadataAnswered
from logyard.broker.controller.settings import (
    LEVEL_2_5,
    LEVEL_3_9,
    ControllerSettings,
    ProtocolLevel,
    protocol_level,
)
from logyard.broker.errors import ErrorCode
from logyard.broker.model import Assignment, BrokerInfo, Endpoint, PartitionState, TopicPartition
from logyard.broker.protocol import codec, header
from logyard.broker.server.handlers import leader_and_isr as leader_and_isr_handler
from logyard.broker.server.handlers import stop_replica as stop_replica_handler
from logyard.broker.server.handlers import update_metadata as update_metadata_handler

TOPIC_ID = UUID(int=77)


def make_context(level: ProtocolLevel = LEVEL_3_9) -> ControllerContext:
    context = ControllerContext(ControllerSettings(1, level=level), epoch=4, epoch_zk_version=4)
    for broker in (1, 2, 3):
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9000 + broker)
        context.brokers[broker] = BrokerInfo(broker, (endpoint,), epoch=100 + broker)
    context.shutting_down.add(3)
    topic = Topic("t", TOPIC_ID)
    context.topics["t"] = topic
    for number in range(3):
        state = None if number == 2 else PartitionState(1, 5, (1, 2), 4, 9, recovering=number == 1)
        tp = TopicPartition("t", number)
        topic.partitions[number] = Partition(tp, Assignment((1, 2, 3), (3,), (2,)), state)
    return context


def partitions(context: ControllerContext) -> list[Partition]:
    return list(context.partitions())


def test_one_request_of_a_kind_per_broker_in_order() -> None:
    context = make_context()
    first, second, _ = partitions(context)
    batch = RequestBatch(context)
    batch.stop_replica(2, first, delete=False)
    batch.leader_and_isr([1, 2, 9], first)
    batch.leader_and_isr([1], second, is_new=True)
    kinds = [(type(r), r.broker_id) for r in batch.requests()]
    assert kinds == [
        (LeaderAndIsrRequest, 1),
        (LeaderAndIsrRequest, 2),
        (UpdateMetadataRequest, 1),
        (UpdateMetadataRequest, 2),
        (UpdateMetadataRequest, 3),
        (StopReplicaRequest, 2),
    ]


def test_is_new_is_sticky_and_deletion_stays() -> None:
    context = make_context()
    first = partitions(context)[0]
    batch = RequestBatch(context)
    batch.leader_and_isr([1], first, is_new=True)
    batch.leader_and_isr([1], first)
    batch.stop_replica(1, first, delete=True)
    batch.stop_replica(1, first, delete=False)
    leader_and_isr, *_, stop = batch.requests()
    assert isinstance(leader_and_isr, LeaderAndIsrRequest)
    assert isinstance(stop, StopReplicaRequest)
    assert [e.is_new for e in leader_and_isr.partitions] == [True]
    assert [(e.delete, e.leader_epoch) for e in stop.partitions] == [(True, 5)]


def test_metadata_leaves_out_stateless_partitions_and_marks_doomed_ones() -> None:
    context = make_context()
    batch = RequestBatch(context)
    batch.update_metadata(partitions(context), [1])
    (request,) = batch.requests()
    assert isinstance(request, UpdateMetadataRequest)
    assert [(e.tp.partition, e.leader, e.offline) for e in request.partitions] == [(0, 1, (3,)), (1, 1, (3,))]
    context.deleting["t"] = None
    batch = RequestBatch(context)
    batch.update_metadata(partitions(context), [1])
    batch.stop_replica(1, partitions(context)[2], delete=True)
    metadata, stop = batch.requests()
    assert isinstance(metadata, UpdateMetadataRequest)
    assert isinstance(stop, StopReplicaRequest)
    assert {e.leader for e in metadata.partitions} == {-2}
    assert (stop.partitions[0].leader_epoch, stop.topic_deletions) == (-2, (TopicPartition("t", 2),))


def test_before_flags_a_mixed_stop_is_two_requests() -> None:
    context = make_context(LEVEL_2_5)
    first, second, _ = partitions(context)
    batch = RequestBatch(context)
    batch.stop_replica(1, first, delete=True)
    batch.stop_replica(1, second, delete=False)
    requests = batch.requests()
    assert [[e.delete for e in r.partitions] for r in requests if isinstance(r, StopReplicaRequest)] == [
        [False],
        [True],
    ]


def through_the_codec(level: ProtocolLevel, request: Any) -> Any:
    api_key, version, fields = Encoder(level, "PLAINTEXT").encode(request)
    frame = memoryview(codec.encode_request(api_key, version, 1, "controller", fields))
    head = header.parse_request_header(frame[4:])
    assert (head.api_key, head.api_version) == (api_key, version)
    return codec.decode_request(api_key, version, head.body)


@pytest.mark.parametrize("level", [LEVEL_3_9, LEVEL_2_5])
def test_on_the_wire(level: ProtocolLevel) -> None:
    context = make_context(level)
    first, second, third = partitions(context)
    batch = RequestBatch(context)
    batch.leader_and_isr([1], first, is_new=True)
    batch.leader_and_isr([1], second)
    batch.stop_replica(1, third, delete=True)
    leader_and_isr, metadata, _, _, stop = (through_the_codec(level, r) for r in batch.requests())
    for request in (leader_and_isr, metadata, stop):
        assert (request.controller_id, request.controller_epoch, request.broker_epoch) == (1, 4, 101)
    (topic,) = leader_and_isr.topic_states
    one, two = topic.partition_states
    assert (topic.topic_name, one.partition_index, one.leader, one.leader_epoch, one.isr) == ("t", 0, 1, 5, [1, 2])
    assert (one.partition_epoch, one.replicas, one.adding_replicas, one.removing_replicas) == (9, [1, 2, 3], [3], [2])
    assert (one.is_new, two.is_new) == (True, False)
    assert [(b.broker_id, b.host_name, b.port) for b in leader_and_isr.live_leaders] == [(1, "127.0.0.1", 9001)]
    assert [b.id for b in metadata.live_brokers] == [1, 2, 3]
    assert metadata.live_brokers[0].endpoints[0].listener == "PLAINTEXT"
    assert metadata.topic_states[0].partition_states[0].zk_version == 9
    assert metadata.topic_states[0].partition_states[0].offline_replicas == [3]
    if level is LEVEL_3_9:
        assert topic.topic_id == metadata.topic_states[0].topic_id == TOPIC_ID
        assert (one.leader_recovery_state, two.leader_recovery_state) == (0, 1)
        assert stop.topic_states[0].partition_states[0].delete_partition
    else:
        assert stop.delete_partitions
        assert [(t.name, t.partition_indexes) for t in stop.topics] == [("t", [2])]


@pytest.mark.parametrize("text", ["0.8.2", "0.10.2", "1.1", "2.2"])
async def test_ungrouped_on_the_wire(text: str) -> None:
    """Below 2.4 the versions without grouping by topic are sent; the broker's own decoders read them."""
    level = protocol_level(InterBrokerProtocol.from_text(text))
    context = make_context(level)
    first, second, third = partitions(context)
    batch = RequestBatch(context)
    batch.leader_and_isr([1], first, is_new=True)
    batch.leader_and_isr([1], second)
    batch.stop_replica(1, third, delete=True)
    leader_and_isr, metadata, _, _, stop = (through_the_codec(level, r) for r in batch.requests())
    order = await leader_and_isr_handler.order_of(leader_and_isr, level.leader_and_isr_version)
    assert [(p.tp, p.leader, p.leader_epoch, p.isr, p.partition_epoch, p.replicas) for p in order.partitions] == [
        (first.tp, 1, 5, (1, 2), 9, (1, 2, 3)),
        (second.tp, 1, 5, (1, 2), 9, (1, 2, 3)),
    ]
    assert [p.is_new for p in order.partitions] == [level.leader_and_isr_version >= 1, False]
    version = level.update_metadata_version
    update = await update_metadata_handler.update_of(metadata, version)
    assert {p.tp for p in update_metadata_handler.partitions_of(metadata, version)} == {first.tp, second.tp}
    assert [(b.id, b.endpoints[0].host, b.endpoints[0].port) for b in update.brokers] == [
        (b, "127.0.0.1", 9000 + b) for b in (1, 2, 3)
    ]
    stopped = await stop_replica_handler.order_of(stop, level.stop_replica_version)
    assert [(p.tp, p.delete) for p in stopped.partitions] == [(third.tp, True)]


def test_brokers_get_the_entries_of_their_own_batch() -> None:
    """What requests share is encoded once; a later batch, and what is sent again, have their own."""
    context = make_context()
    first, second, _ = partitions(context)
    encoder = Encoder(LEVEL_3_9)

    def sent(*to: tuple[int, Partition]) -> list[Any]:
        batch = RequestBatch(context)
        for broker, partition in to:
            batch.leader_and_isr([broker], partition)
        return [encoder.encode(r) for r in batch.requests()]

    def epochs(wire: Any) -> list[tuple[int, int]]:
        frame = codec.encode_request(wire[0], wire[1], 1, "c", wire[2])
        message = codec.decode_request(wire[0], wire[1], header.parse_request_header(memoryview(frame)[4:]).body)
        return [(p.partition_index, p.leader_epoch) for t in message.topic_states for p in t.partition_states]

    early = sent((1, first), (2, first), (2, second))
    assert first.state is not None
    first.state = first.state._replace(leader_epoch=6)
    late = sent((1, first), (2, second))
    assert [epochs(wire) for wire in late] == [[(0, 6)], [(1, 5)], *[[(0, 6), (1, 5)]] * 3]
    assert [epochs(wire) for wire in early] == [[(0, 5)], [(0, 5), (1, 5)], *[[(0, 5), (1, 5)]] * 3]


def test_two_batches_without_partitions_are_not_mixed_up() -> None:
    context = make_context()
    encoder = Encoder(LEVEL_3_9)
    lists = []
    for _ in range(2):
        batch = RequestBatch(context)
        batch.update_metadata([])
        lists.append([[b["id"] for b in encoder.encode(r)[2]["live_brokers"]] for r in batch.requests()])
        context.brokers.pop(2, None)
    assert lists == [[[1, 2, 3]] * 3, [[1, 3]] * 2]


def test_answers() -> None:
    context = make_context()
    first = partitions(context)[0]
    context.deleting["t"] = None
    batch = RequestBatch(context)
    batch.leader_and_isr([1], first)
    batch.stop_replica(1, first, delete=True)
    leader_and_isr, metadata, _, _, stop = batch.requests()
    failed = SimpleNamespace(partition_index=0, error_code=56)
    by_id = [SimpleNamespace(topic_id=topic_id, partition_errors=[failed]) for topic_id in (TOPIC_ID, UUID(int=9))]
    by_name = SimpleNamespace(topic_name="t", partition_index=0, error_code=0)
    for said, code in (
        ({"topics": by_id}, ErrorCode.KAFKA_STORAGE_ERROR),
        ({"partition_errors": [by_name]}, ErrorCode.NONE),
    ):
        event = answered(leader_and_isr, SimpleNamespace(error_code=0, **said))
        assert isinstance(event, LeaderAndIsrAnswered)
        assert (event.broker_id, event.broker_epoch, event.error) == (1, 101, ErrorCode.NONE)
        assert sum(event.partitions.translate({TOPIC_ID: "t"})) >= 1
        assert event.partitions.codes == {first.tp: code}
        assert not list(event.partitions.translate({TOPIC_ID: "t"}))
    assert answered(metadata, SimpleNamespace(error_code=0)) is None
    assert answered(metadata, SimpleNamespace(error_code=77)) == UpdateMetadataAnswered(1, ErrorCode.STALE_BROKER_EPOCH)
    for number, code in ((11, ErrorCode.STALE_CONTROLLER_EPOCH), (31415, ErrorCode.UNKNOWN_SERVER_ERROR)):
        event = answered(stop, SimpleNamespace(error_code=number, partition_errors=[by_name]))
        assert isinstance(event, ReplicasDeleted)
        assert (event.broker_id, event.error, list(event.partitions)) == (1, code, [first.tp])
        assert sum(event.answered.translate({})) == 1
        assert event.answered.codes == {first.tp: ErrorCode.NONE}
