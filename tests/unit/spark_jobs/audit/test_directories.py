"""`--log-dir [ID=]PATH`: which replica each directory is."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pytest

from logyard.spark_jobs import cluster, turns
from logyard.spark_jobs.audit import job
from logyard.spark_jobs.errors import JobFailed
from tests.support.batches import Rec, batch
from tests.support.segment_files import write_partition


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["/a", "/b"], [(0, "/a"), (1, "/b")]),
        (["1=/a", "/b"], [(1, "/a"), (2, "/b")]),
        (["/a", "0=/b", "/c"], [(1, "/a"), (0, "/b"), (2, "/c")]),
        (["/a", "/b", "/c", "1=/d", "2=/e"], [(0, "/a"), (3, "/b"), (4, "/c"), (1, "/d"), (2, "/e")]),
        (["7=/a", "7=/b"], [(7, "/a"), (7, "/b")]),
        (["/a=b", "1=", "²=/c"], [(0, "/a=b"), (1, "1="), (2, "²=/c")]),
    ],
)
def test_who_has_no_id_gets_a_free_one(given: Sequence[str], expected: Sequence[tuple[int, str]]) -> None:
    assert job.numbered(given) == expected


def test_one_id_for_two_directories_of_a_partition_is_refused(tmp_path: Path) -> None:
    """A broker with two disks has each partition on one of them."""
    for name, partition in (("a", "t-0"), ("b", "t-1"), ("c", "t-0")):
        write_partition(tmp_path / name, partition, [[batch([Rec(0, b"k", b"v")])]])
    parser = argparse.ArgumentParser()
    cluster.add_arguments(parser)
    turns.add_option(parser)
    parser.set_defaults(quarantine=False, re_replicate=None, shallow=False, report=None, cleanup_policy=None)
    given = [f"1={tmp_path}/a", f"1={tmp_path}/b"]
    with pytest.raises(JobFailed) as refused:
        job.audit(parser.parse_args([], argparse.Namespace(log_dir=[*given, f"1={tmp_path}/c"])))
    assert str(refused.value) == (
        f"--log-dir: {tmp_path}/a/t-0 and {tmp_path}/c/t-0 are both replica 1 of t-0:"
        " give one of them another ID (--log-dir ID=PATH)"
    )
    assert len(job.of_directories(argparse.Namespace(log_dir=given, topic=[], cleanup_policy=None))) == 2
