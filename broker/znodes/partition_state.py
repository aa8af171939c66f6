"""/brokers/topics/T/partitions/P/state: leader, ISR and epochs; its data version is the partition epoch."""

import re
from functools import lru_cache

from logyard.broker.model import PartitionState, TopicPartition
from logyard.broker.znodes import fields
from logyard.broker.znodes.topics import partition_path

_RECOVERED, _RECOVERING = 0, 1

# The two forms that nearly every state has: ours, and Kafka's (whose keys come in the order of their hashes). A new
# controller reads all states, and a JSON parser takes several times as long. Any other form is read by one.
_NUMBER = rb"(0|-?[1-9][0-9]{0,8})"
_ISR = rb"(\[(?:%s(?:,%s)*)?\])" % ((_NUMBER.replace(b"(", b"(?:"),) * 2)
OURS = re.compile(
    rb'\{"version":[12],"leader":%s,"leader_epoch":%s,"controller_epoch":%s,"isr":%s\}' % (*(_NUMBER,) * 3, _ISR)
)
KAFKAS = re.compile(
    rb'\{"controller_epoch":%s,"leader":%s,"version":[12],"leader_epoch":%s,"isr":%s\}' % (*(_NUMBER,) * 3, _ISR)
)


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
    if usual := OURS.fullmatch(data):
        leader, leader_epoch, controller_epoch, isr = usual.groups()
    elif usual := KAFKAS.fullmatch(data):
        controller_epoch, leader, leader_epoch, isr = usual.groups()
    else:
        return decode_any(data, version, path)
    return PartitionState(int(leader), int(leader_epoch), _isr(isr), int(controller_epoch), version)


@lru_cache(4096)
def _isr(text: bytes) -> tuple[int, ...]:
    """Read a list in the usual form; a cluster has few different ones, which its partitions share."""
    return tuple(map(int, text[1:-1].split(b","))) if len(text) > 2 else ()


def decode_any(data: bytes, version: int, path: str) -> PartitionState:
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
