"""`logyard transactions` beside kafka-transactions, on a broker of Apache Kafka's and on ours: the same lines."""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Place

from logyard.admin.cluster.snapshot import NewTopic
from logyard.cli import main as entry
from logyard.local import interrupts
from tests.reference.both_kinds import BothKinds
from tests.support import kafka
from tests.support.batches import TRANSACTIONAL, Batch, Rec
from tests.support.real_cluster import eventually
from tests.support.wire_client import ask

pytestmark = pytest.mark.timeout(600)

PRODUCE = 0


@pytest.fixture(scope="module", params=["K", "O"])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BothKinds]:
    """Without the check before append, a client can begin a transaction that no coordinator knows."""
    kafka.jars_or_skip()
    config = {
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.partition.verification.enable": "false",
    }
    home = tmp_path_factory.mktemp("transactions")
    kind = request.param
    with kafka.running(home, kind, config) as cluster, closing(BothKinds(cluster, kind)) as both:
        yield both


@pytest.fixture
def run(broker: BothKinds, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(interrupts, "raise_once", lambda: None)

    def command(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = entry.main(["transactions", *words, "--bootstrap-server", broker.cluster.bootstrap])
        said = capsys.readouterr()
        return status, said.out, said.err

    return command


def theirs(broker: BothKinds, *words: str, check: bool = True) -> str:
    return kafka.tool("transactions", "--bootstrap-server", broker.cluster.bootstrap, *words, check=check)


def producer(broker: BothKinds, name: str) -> Producer:
    made = Producer({"bootstrap.servers": broker.cluster.bootstrap, "transactional.id": name})
    made.init_transactions(60)
    made.begin_transaction()
    return made


def hanging(broker: BothKinds, topic: str, producer_id: int) -> int:
    """Write a transactional batch of a producer that no coordinator knows; returns its offset."""
    now = int(time.time() * 1000)
    batch = Batch(
        0, 0, (Rec(0, b"k", b"lost", now),), flags=TRANSACTIONAL, producer_id=producer_id, producer_epoch=0, sequence=0
    )
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch.encode()}]}]
    fields = {"transactional_id": "nobody", "acks": -1, "timeout_ms": 10_000, "topic_data": data}
    (answer,) = ask(broker.cluster.address(0), PRODUCE, 7, fields).responses[0].partition_responses
    assert answer.error_code == 0
    return int(answer.base_offset)


def test_what_is_shown(broker: BothKinds, run: Any) -> None:
    broker.admin.create_topic(NewTopic("shown", partitions=2, replication_factor=1))
    for name, ends in (("committed", "commit_transaction"), ("aborted", "abort_transaction")):
        made = producer(broker, name)
        made.produce("shown", b"v", partition=0)
        made.flush(30)  # what is not sent yet, an abort does not send any more
        getattr(made, ends)(60)
    left_open = producer(broker, "left-open")
    left_open.produce("shown", b"v", partition=0)
    left_open.produce("shown", b"v", partition=1)
    left_open.flush(30)
    for words in (
        ("list",),
        ("list", "--duration-filter", "0"),
        ("list", "--duration-filter", "600000"),
        ("describe-producers", "--topic", "shown", "--partition", "0"),
        ("describe-producers", "--topic", "shown", "--partition", "1", "--broker-id", "0"),
        ("find-hanging", "--topic", "shown", "--max-transaction-timeout", "0"),
    ):
        status, out, err = run(*words)
        assert (status, err) == (0, ""), words
        assert sorted(out.splitlines()) == sorted(theirs(broker, *words).splitlines()), words
    for name, state in (("left-open", "Ongoing"), ("aborted", "CompleteAbort")):
        words = ("describe", "--transactional-id", name)
        ours, found = (text.splitlines() for text in (run(*words)[1], theirs(broker, *words)))
        assert ours[0].split() == found[0].split()
        row, expected = (line[1].split("\t") for line in (ours, found))
        # Durations differ, and Kafka's tool has the partitions in any order.
        assert row[:7] == expected[:7]
        assert sorted(row[8].strip().split(",")) == sorted(expected[8].strip().split(","))
        assert row[4].strip() == state
    left_open.abort_transaction(60)


def test_a_hanging_transaction_is_found_and_ended(broker: BothKinds, run: Any) -> None:
    broker.admin.create_topic(NewTopic("held", partitions=1, replication_factor=1))
    start = hanging(broker, "held", 4_000_000)
    broker.cluster.produce("held", [(None, b"after")])
    search = ("find-hanging", "--topic", "held", "--max-transaction-timeout", "0")
    status, out, _ = run(*search)
    assert status == 0
    assert out.splitlines()[1].split() == ["held", "0", "4000000", "0", "-1", str(start), *out.split()[-2:]]
    assert out == theirs(broker, *search)
    # Of an age that its producer may have, it is left alone.
    assert len(run("find-hanging", "--broker-id", "0")[1].splitlines()) == 1
    assert len(run("find-hanging", "--broker-id", "0", "--max-transaction-timeout", "0")[1].splitlines()) == 2

    with closing(
        Consumer({"bootstrap.servers": broker.cluster.bootstrap, "group.id": "g", "isolation.level": "read_committed"})
    ) as consumer:
        consumer.assign([Place("held", 0, 0)])
        assert consumer.poll(2) is None
        abort = ("abort", "--topic", "held", "--partition", "0", "--start-offset")
        status, _, err = run(*abort, str(start + 7))
        assert (status, err) == (
            1,
            f"logyard: Could not find any open transactions starting at offset {start + 7} on partition held-0\n",
        )
        assert run(*abort, str(start)) == (0, "", "")
        message = eventually(lambda: consumer.poll(1), "the record after the transaction")
        assert message.value() == b"after"
    assert len(run(*search)[1].splitlines()) == 1
    # As for brokers before 3.0, with all that they cannot be asked for.
    again = hanging(broker, "held", 4_000_001)
    assert again > start
    words = ("--producer-id", "4000001", "--producer-epoch", "0", "--coordinator-epoch", "-1")
    assert run("abort", "--topic", "held", "--partition", "0", *words) == (0, "", "")
    assert len(run(*search)[1].splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("describe", "--transactional-id", "nobody"), "there is no transactional id `nobody`"),
        (("describe-producers", "--topic", "none", "--partition", "0"), "there is no partition none-0"),
        (("find-hanging", "--topic", "none"), "there is no topic none"),
        (("abort", "--topic", "none", "--partition", "0", "--start-offset", "1"), "there is no partition none-0"),
    ],
)
def test_refusals(broker: BothKinds, run: Any, words: tuple[str, ...], said: str) -> None:
    status, out, err = run(*words)
    assert (status, out) == (1, "")
    assert said in err
    assert len(err.splitlines()) == 1
