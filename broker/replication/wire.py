"""LeaderAndIsr and StopReplica as the codec's messages and as replication's values, and the answers.

LeaderAndIsr: v1 new replicas, v2 broker epoch and by topic, v3 adding and removing, v5 topic ids (and the answer by
id), v6 recovery. StopReplica: v1 broker epoch and by topic, v3 a flag and a leader epoch per partition.
"""

from typing import Any

from logyard.broker.model import NO_EPOCH, ZERO_TOPIC_ID, TopicId, TopicPartition
from logyard.broker.replication.events import (
    LeaderAndIsr,
    LeaderAndIsrPartition,
    PartitionErrors,
    StopReplica,
    StopReplicaPartition,
)

# -- LeaderAndIsr


def leader_and_isr(message: Any, version: int) -> LeaderAndIsr:
    """Translate a decoded request."""
    if version >= 2:
        pairs = [(topic.topic_name, p) for topic in message.topic_states for p in topic.partition_states]
    else:
        pairs = [(p.topic_name, p) for p in message.ungrouped_partition_states]
    ids = {t.topic_name: t.topic_id for t in message.topic_states} if version >= 5 else {}
    return LeaderAndIsr(
        controller_id=message.controller_id,
        controller_epoch=message.controller_epoch,
        broker_epoch=message.broker_epoch if version >= 2 else NO_EPOCH,
        partitions=tuple(_order(topic, p, version) for topic, p in pairs),
        topic_ids={topic: topic_id for topic, topic_id in ids.items() if topic_id != ZERO_TOPIC_ID},
    )


def _order(topic: str, p: Any, version: int) -> LeaderAndIsrPartition:
    return LeaderAndIsrPartition(
        tp=TopicPartition(topic, p.partition_index),
        leader=p.leader,
        leader_epoch=p.leader_epoch,
        isr=tuple(p.isr),
        replicas=tuple(p.replicas),
        partition_epoch=p.partition_epoch,
        adding=tuple(p.adding_replicas) if version >= 3 else (),
        removing=tuple(p.removing_replicas) if version >= 3 else (),
        is_new=bool(p.is_new) if version >= 1 else False,
        controller_epoch=p.controller_epoch,
        recovering=bool(p.leader_recovery_state) if version >= 6 else False,
    )


def leader_and_isr_response(outcome: PartitionErrors, version: int) -> dict[str, Any]:
    """Return the response's fields: by topic id from v5 on."""
    if version < 5:
        return {"error_code": int(outcome.error), "partition_errors": _named_errors(outcome)}
    topics: dict[TopicId, list[dict[str, int]]] = {}
    for tp, error in outcome.partitions.items():
        topic_id = outcome.topic_ids.get(tp.topic, ZERO_TOPIC_ID)
        topics.setdefault(topic_id, []).append({"partition_index": tp.partition, "error_code": int(error)})
    return {
        "error_code": int(outcome.error),
        "topics": [{"topic_id": topic_id, "partition_errors": errors} for topic_id, errors in topics.items()],
    }


def _named_errors(outcome: PartitionErrors) -> list[dict[str, Any]]:
    return [
        {"topic_name": tp.topic, "partition_index": tp.partition, "error_code": int(error)}
        for tp, error in outcome.partitions.items()
    ]


# -- StopReplica


def stop_replica(message: Any, version: int) -> StopReplica:
    """Translate a decoded request."""
    if version >= 3:
        orders = [
            StopReplicaPartition(
                TopicPartition(topic.topic_name, p.partition_index), p.leader_epoch, bool(p.delete_partition)
            )
            for topic in message.topic_states
            for p in topic.partition_states
        ]
    else:
        if version >= 1:
            named = [TopicPartition(topic.name, n) for topic in message.topics for n in topic.partition_indexes]
        else:
            named = [TopicPartition(p.topic_name, p.partition_index) for p in message.ungrouped_partitions]
        orders = [StopReplicaPartition(tp, NO_EPOCH, bool(message.delete_partitions)) for tp in named]
    return StopReplica(
        controller_id=message.controller_id,
        controller_epoch=message.controller_epoch,
        broker_epoch=message.broker_epoch if version >= 1 else NO_EPOCH,
        partitions=tuple(orders),
    )


def stop_replica_response(outcome: PartitionErrors) -> dict[str, Any]:
    """Return the response's fields."""
    return {"error_code": int(outcome.error), "partition_errors": _named_errors(outcome)}
