"""/brokers/topics/T/partitions/P/state: leader, ISR and epochs; its data version is the partition epoch."""

from logyard.broker.model import PartitionState, TopicPartition
from logyard.broker.znodes import fields
from logyard.broker.znodes.topics import partition_path

_RECOVERED, _RECOVERING = 0, 1


def path(tp: TopicPartition) -> str:
    return f"{partition_path(tp.topic, tp.partition)}/state"


def encode(state: PartitionState) -> bytes:
    """Write version 1; `leader_recovery_state` only while recovering, as Kafka 3.9 does."""
    content: dict[str, object] = {
        "version": 1,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "controller_epoch": state.controller_epoch,
        "isr": list(state.isr),
    }
    if state.recovering:
        content["leader_recovery_state"] = _RECOVERING
    return fields.dump(content)


def decode(data: bytes, version: int, path: str = "/brokers/topics/?/partitions/?/state") -> PartitionState:
    """Read a state; `version` is the znode's data version. Raises CorruptData."""
    content = fields.Fields.parse(path, data)
    recovery = content.integer("leader_recovery_state", _RECOVERED)
    if recovery not in (_RECOVERED, _RECOVERING):
        raise content.wrong("leader_recovery_state", "0 or 1")
    return PartitionState(
        leader=content.integer("leader"),
        leader_epoch=content.integer("leader_epoch"),
        isr=content.integers("isr"),
        controller_epoch=content.integer("controller_epoch"),
        partition_epoch=version,
        recovering=recovery == _RECOVERING,
    )
