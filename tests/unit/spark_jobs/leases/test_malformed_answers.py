"""Answers of a broker that are not as docs/leases.md says: each ends in one line that names broker and field."""

import copy
import json
import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from logyard.broker.model import TopicPartition
from logyard.login.http import HttpLogin, Trust
from logyard.spark_jobs.audit.job import leased
from logyard.spark_jobs.cluster import Cluster
from logyard.spark_jobs.compact.partition import lease_partition
from logyard.spark_jobs.errors import JobFailed
from logyard.spark_jobs.leases import client
from logyard.spark_jobs.leases.broker_http import BrokerHttp, LeaseError
from logyard.spark_jobs.leases.client import Lease, acquire, partition_status, partitions_status, quarantine_replica
from logyard.spark_jobs.metadata import Metadata, PartitionMetadata
from logyard.spark_jobs.segments.replicas import of_leased
from tests.support.batches import Rec, batch
from tests.support.lease_server import FakeBroker, FakeReplica
from tests.support.segment_files import write_partition

LOG = [[batch([Rec(j, b"k", b"v"), Rec(j + 1, b"l", b"w")])] for j in range(0, 6, 2)]
PLACE = PartitionMetadata(1, (1,), (1,))
ODD: tuple[Any, ...] = (None, "7", "no\nnumber", 1.5, True, [], {}, [None], {"a": None}, 2**63, -(2**200))


class Odd(FakeBroker):
    """A broker that changes what it says: `bend` gets the request and the body of the answer."""

    bend: Callable[[str, bytes], bytes] = staticmethod(lambda _asked, said: said)

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        if method == "POST" and path.endswith("/quarantine"):
            status, said = 200, json.dumps({"kept": "/data/1/t-0.x-stray"}).encode()
        else:
            status, said = super().answer(method, path, headers, body)
        return status, self.bend(f"{method} {path}", said)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Odd]:
    directory = write_partition(tmp_path, "t-0", LOG)
    producer = {"producer_id": 4, "producer_epoch": 0, "last_offset": 1}
    aborted = {"producer_id": 4, "first_offset": 0, "last_offset": 1, "last_stable_offset": 2}
    replica = FakeReplica(directory, True, isr=(1,), producers=[producer], aborted=[aborted])
    odd = Odd(1, {("t", 0): replica})
    with odd:
        yield odd


def http(broker: FakeBroker) -> BrokerHttp:
    return BrokerHttp(1, broker.address, broker.token)


def told(error: Exception, broker: FakeBroker, *words: str) -> None:
    """Check the one line."""
    text = str(error)
    assert "\n" not in text
    assert f"broker 1 at http://{broker.address}: the answer to " in text
    for word in words:
        assert word in text
    assert len(text) < 400


def places(row: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to everything in a JSON document."""
    inner: Any = row.items() if isinstance(row, dict) else enumerate(row) if isinstance(row, list) else ()
    for key, value in inner:
        yield (*path, key)
        yield from places(value, (*path, key))


def changed(row: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    row = copy.deepcopy(row)
    inner = row
    for key in path[:-1]:
        inner = inner[key]
    change(inner, path[-1])
    return row


def changing(asked: str, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Callable[[str, bytes], bytes]:
    def bend(request: str, said: bytes) -> bytes:
        return json.dumps(changed(json.loads(said), path, change)).encode() if request.startswith(asked) else said

    return bend


def remove(inner: Any, key: Any) -> None:
    del inner[key]


def put(value: Any, inner: Any, key: Any) -> None:
    inner[key] = value


def take(broker: Odd, purpose: str = "compact") -> Lease:
    """Take a lease and have all of it read that a job reads."""
    lease = acquire(http(broker), "t", 0, "run", purpose)
    replica = of_leased(lease)
    assert all(isinstance(o, int) for o in (replica.log_start_offset, replica.now_ms, lease.generation))
    return lease


def refusal(broker: Odd, purpose: str) -> LeaseError | None:
    try:
        take(broker, purpose)
    except LeaseError as error:
        return error
    return None


NEEDED = [
    ("lease_id",),
    ("generation",),
    ("leader_epoch",),
    ("is_leader",),
    ("end_offset",),
    ("high_watermark",),
    ("log_start_offset",),
    ("log_end_offset",),
    ("last_stable_offset",),
    ("clean_offset",),
    ("now_ms",),
    ("first_dirty_at_ms",),
    ("directory",),
    ("isr",),
    ("segments",),
    ("segments", 0, "base_offset"),
    ("segments", 1, "size"),
    ("segments", 0, "files"),
    ("leader_epochs",),
    ("producers", 0, "producer_epoch"),
    ("aborted_transactions", 0, "last_stable_offset"),
    ("config",),
    ("config", "cleanup.policy"),
    ("config", "delete.retention.ms"),
    ("config", "min.cleanable.dirty.ratio"),
]


def named(path: tuple[Any, ...]) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)[1:]


@pytest.mark.parametrize("path", NEEDED, ids=named)
def test_a_lease_without_a_field_names_it(broker: Odd, path: tuple[Any, ...]) -> None:
    broker.bend = changing("POST /leases", path, remove)
    with pytest.raises(LeaseError) as caught:
        take(broker)
    assert caught.value.code == "bad_answer"
    told(caught.value, broker, "POST /leases: ", f"field {named(path)} is missing")


@pytest.mark.parametrize("path", NEEDED, ids=named)
def test_a_lease_with_a_field_of_another_type_names_it(broker: Odd, path: tuple[Any, ...]) -> None:
    broker.bend = changing("POST /leases", path, partial(put, {"a": None}))
    with pytest.raises(LeaseError) as caught:
        take(broker)
    told(caught.value, broker, "POST /leases: ", f"field {named(path)}")


@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_lease_says_is_a_lease_or_one_line(broker: Odd, seed: int) -> None:
    rng = random.Random(seed)
    purpose = rng.choice(["compact", "audit", "export"])
    whole = dict(acquire(http(broker), "t", 0, "run", purpose).details)
    refused = 0
    for path in list(places(whole)):
        for change in (remove, partial(put, rng.choice(ODD)), partial(put, rng.choice(ODD))):
            broker.bend = changing("POST /leases", path, change)
            if (error := refusal(broker, purpose)) is not None:
                refused += 1
                assert error.code == "bad_answer"
                told(error, broker, "field ")
            broker.bend = Odd.bend
    assert refused > 50


@pytest.mark.parametrize("said", [b"", b"<html>", b"[]", b"7", b"null", b"[" * 100_000, b'"a\\ud800"', b"\xff\xfe{"])
def test_an_answer_that_is_no_object_names_the_broker(broker: Odd, said: bytes) -> None:
    broker.bend = lambda _asked, _said: said
    asked: list[Callable[[], Any]] = [
        lambda: acquire(http(broker), "t", 0, "run", "audit"),
        lambda: partition_status(http(broker), "t", 0),
        lambda: partitions_status(http(broker)),
        lambda: quarantine_replica(http(broker), "t", 0, "damaged"),
    ]
    for ask in asked:
        with pytest.raises(LeaseError, match=r"is not JSON|is no JSON object") as caught:
            ask()
        told(caught.value, broker)


@pytest.mark.parametrize(
    ("ask", "path"),
    [
        (lambda b: partition_status(b, "t", 0), ("high_watermark",)),
        (lambda b: partition_status(b, "t", 0), ("leader_epochs", 0)),
        (lambda b: partition_status(b, "t", 0), ("is_leader",)),
        (partitions_status, ("strays",)),
        (lambda b: quarantine_replica(b, "t", 0, "damaged"), ("kept",)),
    ],
)
def test_other_answers_are_read_as_closely(broker: Odd, ask: Callable[[BrokerHttp], Any], path: tuple[Any]) -> None:
    assert ask(http(broker))
    broker.bend = changing("", path, partial(put, {}))
    with pytest.raises(LeaseError) as caught:
        ask(http(broker))
    told(caught.value, broker, f"field {named(path)}: ", "is expected, not {}")


def cluster(broker: FakeBroker) -> Cluster:
    return Cluster(Metadata("fake", (1,), {"t": {0: PLACE}}), {1: http(broker)})


def test_the_jobs_say_it_and_go_on(broker: Odd) -> None:
    tp = TopicPartition("t", 0)
    broker.bend = changing("POST /leases", ("config", "cleanup.policy"), remove)
    words = f"broker 1 at http://{broker.address}: the answer to POST /leases: field config.cleanup.policy is missing"
    run = lease_partition(cluster(broker), tp, PLACE, "run", [])
    assert words in run.failure
    leases: list[Lease] = []
    findings = leased("t", cluster(broker), leases).findings
    assert [f.message for f in findings] == [f"not audited: {words}", "no replica could be audited"]
    assert len(leases) == 1, "it is given back with the others"
    broker.bend = changing("POST /leases", ("lease_id",), partial(put, 5))
    with pytest.raises(JobFailed, match=r"t-0: no lease on its leader: broker 1 at .*lease_id: a text is expected"):
        cluster(broker).lease_leader(tp, "run", "export")


COMMITS: Mapping[str, Callable[[str, bytes], bytes]] = {
    "no JSON": lambda asked, said: b"<html>" if asked.endswith("/commit") else said,
    "no number": lambda asked, said: b'{"segments_after": "2"}' if asked.endswith("/commit") else said,
}


@pytest.mark.parametrize("how", COMMITS)
def test_a_commit_whose_answer_makes_no_sense_is_looked_up(
    broker: Odd, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have happened."""
    monkeypatch.setattr(client, "COMMIT_LOOK_S", 0)
    monkeypatch.setattr(client, "COMMIT_LOOKS", 3)
    lease = take(broker)
    broker.bend = COMMITS[how]
    assert lease.commit({"range_end": 4}, [], 4)["state"] == "committed"
    for path in (("state",), ("result",), ("result", "segments_before")):
        broker.bend = changing("GET /leases", path, partial(put, "7"))
        with pytest.raises(LeaseError, match=r"^broker 1: the connection broke$"):
            lease.committed_after_all(LeaseError("unreachable", "broker 1: the connection broke"))


@pytest.mark.parametrize("token", ["missing", None, 7, "", "a\nb", "ü", {"a": 1}])
def test_an_answer_without_a_runs_token_names_the_broker(token: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log-in itself is test_secured_broker.py's."""
    said = {} if token == "missing" else {"token": token}
    monkeypatch.setattr(BrokerHttp, "call", lambda *_args, **_words: said)
    broker = BrokerHttp(1, "https://127.0.0.1:9", "", Trust(), HttpLogin(Trust(), Trust().context(), "Basic eDp5"))
    with pytest.raises(LeaseError, match=r"^broker 1 at https://127.0.0.1:9: the answer to POST /tokens: field token"):
        broker.for_run("run", "t", "audit")
