"""Accepted decisions: parsing the one in a commit, and what is kept in memory of each replica's last one."""

import base64
import binascii
import hashlib
from typing import Any, NamedTuple

from logyard.broker.compaction.decision_format import KEPT_BYTES_MAX, Decision
from logyard.broker.errors import CorruptData
from logyard.broker.leases.requests import CommitRequest, invalid_request
from logyard.broker.model import TopicPartition


class KeptDecision(NamedTuple):
    """A decision on disk; its bytes are read when another broker asks for them."""

    leader_epoch: int
    range_end: int
    tombstone_cutoff: int
    sha256: str
    size: int

    @classmethod
    def of(cls, decision: Decision, data: bytes) -> "KeptDecision":
        return cls(
            decision.leader_epoch,
            decision.range_end,
            decision.tombstone_cutoff,
            hashlib.sha256(data).hexdigest(),
            len(data),
        )

    def to_json(self, tp: TopicPartition) -> dict[str, Any]:
        return {"topic": tp.topic, "partition": tp.partition, **self._asdict()}


def read_decision(text: str, request: CommitRequest, tp: TopicPartition) -> bytes:
    """Decode `decision.bytes` of a commit and check it against the other fields; raises LeaseError(invalid_request)."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid_request(f"decision.bytes: base64 is needed: {error}") from None
    if len(data) > KEPT_BYTES_MAX:
        raise invalid_request(f"decision.bytes: {len(data)} bytes, {KEPT_BYTES_MAX} at most: leave it out")
    if hashlib.sha256(data).hexdigest() != request.decision_sha256:
        raise invalid_request("decision.bytes: their SHA-256 is not decision.sha256")
    try:
        decision = Decision.decode_head(data)
    except CorruptData as error:
        raise invalid_request(f"decision.bytes: {error}") from None
    if (decision.topic, decision.partition) != (tp.topic, tp.partition):
        raise invalid_request(f"decision.bytes: it is for {decision.topic}-{decision.partition}, the lease for {tp}")
    if request.range_end > decision.range_end:
        raise invalid_request(
            f"decision.bytes: it ends at {decision.range_end}, the commit's range at {request.range_end}"
        )
    return data
