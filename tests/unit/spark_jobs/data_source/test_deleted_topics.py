"""Topics that a broker does not know: a stream has lost data then, and a batch read ends, unless that one broker alone
does not know them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from logyard.broker.model import TopicPartition
from logyard.spark_jobs import cluster as clusters
from logyard.spark_jobs.cluster import Cluster
from logyard.spark_jobs.data_source import witness
from logyard.spark_jobs.data_source.batch import LogyardReader
from logyard.spark_jobs.data_source.options import BadOption
from logyard.spark_jobs.data_source.positions import offset_of, positions
from logyard.spark_jobs.data_source.stream import LogyardStreamReader
from logyard.spark_jobs.errors import JobFailed
from logyard.spark_jobs.leases.broker_http import BrokerHttp
from logyard.spark_jobs.metadata import ClusterUnreachable, Metadata, NotTold, PartitionMetadata
from tests.support.batches import Rec, batch
from tests.support.lease_server import FakeBroker, FakeReplica
from tests.support.segment_files import write_partition

ALL = ReadAllAvailable()
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
PLACE = PartitionMetadata(1, (1,), (1,))


class Brokers:
    """A broker with 5 offsets of t-0, t-1 and u-0. `known`: the partitions of each topic as the broker tells that is
    asked first; `true`: as the controller does, or the error instead; `away_for`: how many more questions nobody is
    controller for."""

    def __init__(self, http: FakeBroker) -> None:
        self._http = BrokerHttp(1, http.address, http.token)
        self.known: dict[str, int] = {"t": 2, "u": 1}
        self.true: dict[str, int] | Exception = {"t": 2, "u": 1}
        self.witness_asked = self.away_for = 0

    def connect(self, arguments: Any) -> Cluster:
        return Cluster(_metadata(self.known, ()), {1: self._http}, witness=partial(self.witnessed, arguments))

    def witnessed(self, _arguments: Any, topics: Sequence[str] | None) -> Metadata:
        self.witness_asked += 1
        if isinstance(self.true, Exception):
            raise self.true
        if self.away_for:
            self.away_for -= 1
            raise ClusterUnreachable("the cluster has no controller now")
        return _metadata(self.true, topics or ())


def _metadata(counts: dict[str, int], topics: Sequence[str]) -> Metadata:
    there = {name: dict.fromkeys(range(count), PLACE) for name, count in counts.items()}
    missing = tuple(name for name in topics if name not in there)
    return Metadata("fake", (1,), {n: p for n, p in there.items() if not topics or n in topics}, missing=missing)


@pytest.fixture
def brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Brokers]:
    log = [[batch([Rec(i, b"k", b"v", 1000 + i)]) for i in range(5)]]
    replicas = {
        (tp.topic, tp.partition): FakeReplica(write_partition(tmp_path, str(tp), log), True, isr=(1,))
        for tp in (T0, T1, U0)
    }
    with ExitStack() as stack:
        yard = Brokers(stack.enter_context(FakeBroker(1, replicas, hidden=True)))
        monkeypatch.setattr("logyard.spark_jobs.cluster.connect", yard.connect)
        monkeypatch.setattr("logyard.spark_jobs.cluster.witnessed", yard.witnessed)
        monkeypatch.setattr(witness, "PAUSE_S", 0.0)
        monkeypatch.setattr(clusters, "WITNESS_PAUSE_S", 0.0)
        monkeypatch.setattr(clusters, "CONTROLLER_S", 0.0)
        yield yard


def stream(**options: str) -> LogyardStreamReader:
    return LogyardStreamReader(["partition", "offset"], {"subscribePattern": "t|u", **options})


def ends(offset: dict[str, Any]) -> dict[TopicPartition, int]:
    return {tp: position.offset for tp, position in positions(offset).items()}


def test_a_deleted_topic_of_a_pattern_is_data_loss(brokers: Brokers) -> None:
    start = stream().initialOffset()
    brokers.known = brokers.true = {"t": 2}
    with pytest.raises(BadOption, match=r"u-0: it was read up to offset 0, and was deleted since \(failOnDataLoss"):
        stream().latestOffset(start, ALL)


def test_where_loss_is_allowed_it_is_told_once_and_the_topic_forgotten(
    brokers: Brokers, capsys: pytest.CaptureFixture[str]
) -> None:
    start, reader = stream().initialOffset(), stream(failOnDataLoss="false")
    brokers.known = brokers.true = {"t": 2}
    brokers.witness_asked = 0
    following = reader.latestOffset(start, ALL)
    assert ends(following) == {T0: 5, T1: 5}
    assert "u-0: it was read up to offset 0, and was deleted since: what was not read" in capsys.readouterr().err
    assert reader.latestOffset(following, ALL) == following
    assert (brokers.witness_asked, capsys.readouterr().err) == (1, "")
    assert reader.partitions(following, following) == []


@pytest.mark.parametrize("true", [{"t": 2, "u": 1}, ClusterUnreachable("the cluster has no controller now")])
@pytest.mark.parametrize("options", [{}, {"subscribePattern": "", "subscribe": "t,u"}], ids=["pattern", "named"])
def test_one_broker_that_does_not_know_a_topic_is_no_proof(brokers: Brokers, true: Any, options: Any) -> None:
    start = stream().initialOffset()
    brokers.known, brokers.true = {"t": 2}, true
    for fail in ("true", "false"):
        following = stream(failOnDataLoss=fail, **options).latestOffset(start, ALL)
        assert ends(following) == {T0: 5, T1: 5, U0: 0}
    assert brokers.witness_asked >= 2
    brokers.known = {"t": 2, "u": 1}
    assert ends(stream(**options).latestOffset(following, ALL)) == {T0: 5, T1: 5, U0: 5}


def test_a_topic_that_the_login_may_not_know_is_said(brokers: Brokers) -> None:
    start = stream().initialOffset()
    brokers.known, brokers.true = {"t": 2}, NotTold("topic u: the brokers do not tell this login whether it exists")
    with pytest.raises(NotTold):
        stream().latestOffset(start, ALL)


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_named_topic_that_was_deleted_ends_the_query(brokers: Brokers, fail: str) -> None:
    """As with Spark's Kafka source."""
    start = stream().initialOffset()
    brokers.known = brokers.true = {"t": 2}
    with pytest.raises(JobFailed, match="topic u does not exist on fake"):
        stream(subscribePattern="", subscribe="t,u", failOnDataLoss=fail).latestOffset(start, ALL)


def test_a_topic_made_again_with_fewer_partitions_is_data_loss(brokers: Brokers) -> None:
    start = stream().initialOffset()
    brokers.known = brokers.true = {"t": 1, "u": 1}
    options = {"subscribePattern": "", "assign": '{"t": [1]}'}
    with pytest.raises(BadOption, match="t-1: it was read up to offset 0, and was deleted since"):
        stream(**options).latestOffset(start, ALL)


@pytest.mark.parametrize("later", [{"t": 2, "u": 1}, {"t": 2}, {"t": 1, "u": 1}], ids=str)
@pytest.mark.parametrize("begun", [{"t": 2, "u": 1}, {"t": 2}, {}], ids=str)
def test_available_now_reads_what_one_broker_does_not_know(
    brokers: Brokers, begun: dict[str, int], later: dict[str, int]
) -> None:
    """Neither a topic that the query has read before, nor a new one, waits for the next run."""
    everything, brokers.true = brokers.true, begun
    start = stream().initialOffset() if begun else offset_of({})
    brokers.known, brokers.true = {"t": 2}, everything
    reader = stream()
    reader.prepareForTriggerAvailableNow()
    brokers.known = later
    assert ends(reader.latestOffset(start, ALL)) == {T0: 5, T1: 5, U0: 5}


def test_available_now_does_not_end_well_where_nobody_tells_the_topics(brokers: Brokers) -> None:
    start, reader = stream().initialOffset(), stream()
    brokers.known, brokers.true = {"t": 2}, ClusterUnreachable("the cluster has no controller now")
    with pytest.raises(JobFailed, match="which topics there are: the cluster has no controller now"):
        reader.prepareForTriggerAvailableNow()
    brokers.true = {"t": 2, "u": 1}
    reader.prepareForTriggerAvailableNow()
    brokers.true = ClusterUnreachable("the cluster has no controller now")
    with pytest.raises(JobFailed, match="topic u: a broker does not know all of it"):
        reader.latestOffset(start, ALL)


def test_available_now_ends_where_a_deleted_topic_may_be_lost(brokers: Brokers) -> None:
    start, reader = stream().initialOffset(), stream(failOnDataLoss="false")
    reader.prepareForTriggerAvailableNow()
    brokers.known = brokers.true = {"t": 2}
    following = reader.latestOffset(start, ALL)
    assert ends(following) == {T0: 5, T1: 5}
    assert reader.latestOffset(following, ALL) == following


def batch_read(**options: str) -> list[tuple[int, int]]:
    reader = LogyardReader(["partition", "offset"], options)
    found = [row for p in reader.partitions() for b in reader.read(p) for row in b.to_pylist()]
    return sorted((row["partition"], row["offset"]) for row in found)


READS = {
    "a topic": ({"subscribe": "u"}, {"t": 2}, 0),
    "a topic of two": ({"assign": '{"u": [0]}'}, {"t": 2}, 0),
    "a partition": ({"assign": '{"t": [1]}'}, {"t": 1, "u": 1}, 1),
    "a partition by its offset": (
        {"subscribe": "t", "startingOffsets": '{"t": {"0": 5, "1": 0}}'},
        {"t": 1, "u": 1},
        1,
    ),
    "a partition of a pattern by its offset": (
        {"subscribePattern": "t|u", "startingOffsets": '{"u": {"0": 0}, "t": {"0": 5, "1": 5}}'},
        {"t": 2},
        0,
    ),
}


@pytest.mark.parametrize("case", READS)
def test_a_batch_read_goes_on_with_what_the_controller_knows(brokers: Brokers, case: str) -> None:
    options, brokers.known, partition = READS[case]
    assert batch_read(**options) == [(partition, n) for n in range(5)]
    assert brokers.witness_asked == 1


@pytest.mark.parametrize("case", READS)
def test_a_batch_read_of_what_nobody_knows_ends(brokers: Brokers, case: str) -> None:
    options, brokers.known, _ = READS[case]
    brokers.true = brokers.known
    with pytest.raises((BadOption, JobFailed), match=r"does not exist|is none of the partitions that are read"):
        batch_read(**options)
    brokers.true = ClusterUnreachable("the cluster has no controller now")
    with pytest.raises(JobFailed, match=r"cannot be told now (whether it|which).*: the cluster has no controller now"):
        batch_read(**options)
    brokers.true = NotTold("topic u: the brokers do not tell this login whether it exists")
    with pytest.raises(NotTold):
        batch_read(**options)


PATTERN = {"subscribePattern": "t|u", "columns": "partition,offset"}


@pytest.mark.parametrize("known", [{"t": 2}, {"t": 1, "u": 1}, {"u": 1}, {}], ids=str)
def test_a_pattern_finds_what_the_broker_that_was_asked_does_not_know(brokers: Brokers, known: dict[str, int]) -> None:
    """Neither a topic nor a partition is left out without a word."""
    brokers.known = known
    assert len(batch_read(**PATTERN)) == 15
    assert ends(stream().initialOffset()) == {T0: 0, T1: 0, U0: 0}


def test_a_pattern_does_not_find_what_the_controller_no_longer_knows(brokers: Brokers) -> None:
    brokers.true = {"t": 2}
    assert len(batch_read(**PATTERN)) == 10


def test_a_pattern_waits_for_a_controller(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers.known, brokers.true = {"t": 2}, ClusterUnreachable("the cluster has no controller now")
    with pytest.raises(JobFailed, match=r"which topics there are: the cluster has no controller now: name the topics"):
        batch_read(**PATTERN)

    monkeypatch.setattr(clusters, "CONTROLLER_S", 30.0)
    brokers.true, brokers.away_for = {"t": 2, "u": 1}, 3
    assert len(batch_read(**PATTERN)) == 15


def test_a_batch_read_of_what_is_there_asks_nobody_else(brokers: Brokers) -> None:
    assert len(batch_read(subscribe="t,u", startingOffsets='{"t": {"1": 5}}')) == 10
    assert len(batch_read(assign='{"t": [0]}')) == 5
    assert brokers.witness_asked == 0


def test_the_jobs_ask_the_controller_too(brokers: Brokers) -> None:
    brokers.known = {"t": 2}
    cluster = brokers.connect(None)
    assert [tp for tp, _ in cluster.partitions(["u", "t"])] == [T0, T1, U0]
    lease = cluster.lease_leader(U0, "run", "export")
    lease.abort("it is a test")
    with pytest.raises(JobFailed, match="topic v does not exist on fake"):
        cluster.partitions(["t", "v"])
