"""From which offset an export goes on, and what it refuses."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from logyard.spark_jobs.export.errors import ExportRefused
from logyard.spark_jobs.export.manifest import Manifest, TopicOffsets
from logyard.spark_jobs.export.offsets import plan_range, topic_offsets
from logyard.spark_jobs.segments.replicas import Replica
from logyard.spark_jobs.segments.splits import Range
from tests.support import compaction_model as model
from tests.support.batches import Rec, batch
from tests.support.job_replicas import replica_of_log

PLAIN = {"committed_only": True, "allow_data_loss": False, "accept_new_topic": False}


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    log = model.Log([batch([Rec(i, b"k", b"v")]) for i in range(10)])
    return replica_of_log(tmp_path, log, cluster_id="c", topic_id="one", last_stable_offset=8)


def span(replica: Replica, manifest: Manifest | None = None, **fields: bool) -> tuple[int, int]:
    found = plan_range(replica, manifest or Manifest(), **{**PLAIN, **fields})
    return found.start, found.end


def exported(offset: int, topic_id: str = "one", cluster_id: str = "c", epoch: int | None = None) -> Manifest:
    epochs = {} if epoch is None else {0: epoch}
    return Manifest(1, cluster_id, "r", {"t": TopicOffsets(topic_id, {0: offset}, "", epochs)})


def test_a_run_goes_on_where_the_last_one_ended(replica: Replica) -> None:
    assert span(replica) == (0, 8)
    assert span(replica, committed_only=False) == (0, 10)
    assert span(replica, exported(5)) == (5, 8)
    assert span(replica, exported(9)) == (9, 9), "exported uncommitted before: nothing to do yet"


def test_deleted_offsets_are_refused_unless_allowed(replica: Replica) -> None:
    shortened = replace(replica, log_start_offset=6)
    assert span(shortened) == (6, 8)
    with pytest.raises(ExportRefused, match="offsets 5 to 5 were deleted"):
        span(shortened, exported(5))
    assert span(shortened, exported(5), allow_data_loss=True) == (6, 8)


def test_what_a_new_partition_lost_before_it_was_exported_is_refused(replica: Replica) -> None:
    lease: Any = object()
    added = replace(replica, partition=1, log_start_offset=6, lease=lease)
    with pytest.raises(ExportRefused, match="t-1: offsets 0 to 5 were deleted before they were exported"):
        span(added, exported(5))
    assert span(added, exported(5), allow_data_loss=True) == (6, 8)
    assert span(replace(added, log_start_offset=0), exported(5)) == (0, 8)
    assert span(added) == (6, 8), "of a topic that is new to the export nothing is missed"
    assert span(replace(added, lease=None), exported(5)) == (6, 8), "nor of what another directory has"
    given_up = Manifest(1, "c", "r", {"t": TopicOffsets("one", {0: 5, 2: 5})})
    assert span(added, given_up) == (6, 8)


def test_another_cluster_topic_or_a_shorter_log_are_refused(replica: Replica) -> None:
    with pytest.raises(ExportRefused, match="another --destination"):
        span(replica, exported(5, cluster_id="d"))
    with pytest.raises(ExportRefused, match="--accept-new-topic"):
        span(replica, exported(5, topic_id="two"))
    assert span(replica, exported(5, topic_id="two"), accept_new_topic=True) == (0, 8)
    with pytest.raises(ExportRefused, match="exported up to 11, and from 10 on the log has lost these records"):
        span(replica, exported(11))
    assert span(replica, exported(11), allow_data_loss=True) == (11, 11)
    with pytest.raises(ExportRefused, match="not known"):
        span(replace(replica, high_watermark=-1))


def test_right_after_a_failover_there_is_nothing_to_do_yet(replica: Replica) -> None:
    lagging = replace(replica, high_watermark=3, last_stable_offset=3, log_end_offset=10, leader_epoch=4)
    assert span(lagging, exported(9, epoch=0)) == (9, 9)
    # Nothing that is committed may go back, either.
    manifest = exported(9, epoch=0)
    following = manifest.advanced(run_id="r2", topics=topic_offsets([Range(lagging, 9, 9)], ""))
    assert following.topics["t"] == manifest.topics["t"]


def test_records_lost_after_they_were_exported_are_said(replica: Replica) -> None:
    """An unclean election cut the log at 4; it has grown beyond what was exported since."""
    cut = replace(replica, log_end_offset=10, leader_epochs=((0, 0), (2, 4)), leader_epoch=2)
    said = "exported up to 6, and from 4 on the log has lost these records, .* --allow-data-loss continues at 6"
    with pytest.raises(ExportRefused, match=said):
        span(cut, exported(6, epoch=0))
    assert span(cut, exported(6, epoch=0), allow_data_loss=True) == (6, 8)
    assert span(cut, exported(6, epoch=2)) == (6, 8)
    assert span(cut, exported(4, epoch=0)) == (4, 8)
    assert span(cut, exported(6)) == (6, 8), "of a manifest without epochs"
    with pytest.raises(ExportRefused, match="leads it in epoch 2, and epoch 3 was exported"):
        span(cut, exported(6, epoch=3))


def test_a_range_goes_with_the_epoch_of_its_last_record(replica: Replica) -> None:
    led = replace(replica, leader_epochs=((1, 0), (4, 5)))
    topics = topic_offsets([Range(led, 0, 5)], "")
    assert topics["t"] == TopicOffsets("one", {0: 5}, "", {0: 1})
    following = Manifest().advanced(run_id="a", topics=topics)
    following = following.advanced(run_id="b", topics=topic_offsets([Range(led, 5, 8)], ""))
    assert following.topics["t"] == TopicOffsets("one", {0: 8}, "", {0: 4})
    assert Manifest.from_json(following.to_json()) == following
