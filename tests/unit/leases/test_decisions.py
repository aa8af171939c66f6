"""The decision in a commit: checked on the event loop, so by its head."""

import base64
import zlib

import pytest

from logyard.broker.compaction.decision_format import Decision
from logyard.broker.compaction.offset_set import OffsetSet
from logyard.broker.leases.book import LeaseError
from logyard.broker.leases.decisions import KeptDecision, read_decision
from logyard.broker.leases.requests import CommitRequest
from logyard.broker.model import TopicPartition

TP = TopicPartition("t", 0)


def asked(decision: Decision) -> tuple[str, CommitRequest]:
    request = CommitRequest(1, 0, 0, decision.sha256, decision.range_start, decision.range_end, ())
    return base64.b64encode(decision.encode()).decode(), request


def test_a_commits_decision_is_checked_whatever_it_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    decision = Decision("t", 0, 3, 0, 100, 1, 1, 50, OffsetSet(range(100)))
    text, request = asked(decision)
    monkeypatch.delattr(OffsetSet, "decode")  # a hundred million offsets take ten seconds
    data = read_decision(text, request, TP)
    assert KeptDecision.of(Decision.decode_head(data), data) == (3, 100, 50, decision.sha256, len(data))
    for other in (TopicPartition("t", 1), TopicPartition("u", 0)):
        with pytest.raises(LeaseError, match="it is for t-0"):
            read_decision(text, request, other)


def test_hundreds_of_millions_of_offsets_fit_what_a_broker_takes() -> None:
    """Why: such a set is a run of ones."""
    assert len(zlib.compress(bytes([1]) * 10_000_000, 1)) * 20 < 1 << 20
