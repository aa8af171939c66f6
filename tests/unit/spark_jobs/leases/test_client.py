import hashlib
import pickle
import stat
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from logyard.spark_jobs.leases.broker_http import BrokerHttp, LeaseError
from logyard.spark_jobs.leases.client import Lease, acquire, end_leases, end_run
from logyard.spark_jobs.leases.heartbeats import Heartbeats
from logyard.spark_jobs.segments.files import LocalFile, RemoteFile, of_lease
from tests.support.batches import Rec, batch
from tests.support.lease_server import FakeBroker, FakeReplica
from tests.support.segment_files import write_partition

LOG = [[batch([Rec(2 * i, b"k", b"v" * 50), Rec(2 * i + 1, b"l", b"v")]) for i in range(j, j + 4)] for j in (0, 4, 8)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[FakeBroker]:
    directory = write_partition(tmp_path, "t-0", LOG)
    with FakeBroker(1, {("t", 0): FakeReplica(directory, True, isr=(1,))}) as fake:
        yield fake


def http(broker: FakeBroker) -> BrokerHttp:
    return BrokerHttp(1, broker.address, broker.token)


def test_a_lease_tells_segments_and_opens_them_where_they_are_seen(broker: FakeBroker) -> None:
    lease = acquire(http(broker), "t", 0, "r", "compact")
    assert [s.base_offset for s in lease.segments] == [0, 8]
    assert lease.end_offset == 16
    first = of_lease(lease)[0]
    source = first.open()
    assert isinstance(source, LocalFile)
    whole = b"".join(b.encode() for b in LOG[0])
    assert bytes(source.read(0, 10**6)) == whole
    assert first.name.endswith("/t-0/00000000000000000000.log")


def test_hidden_files_are_read_over_http_in_ranges(broker: FakeBroker) -> None:
    broker.hidden = True
    lease = acquire(http(broker), "t", 0, "r", "audit")
    assert lease.local_links() is None
    active = of_lease(lease)[-1]
    source = active.open()
    assert isinstance(source, RemoteFile)
    whole = b"".join(b.encode() for b in LOG[2])
    assert bytes(source.read(0, 10)) + bytes(source.read(10, 10**6)) == whole
    assert len(source.read(len(whole), 5)) == 0
    assert of_lease(lease)[0].read_all("index") == (Path(lease.details["directory"]) / f"{0:020d}.index").read_bytes()
    assert active.read_all("index") == b""


def test_a_proxy_that_ignores_ranges_is_no_damage(broker: FakeBroker) -> None:
    """Its bytes, the file's front, would be an audit's proof that a sound replica is to be set aside."""
    broker.hidden = broker.ignores_ranges = True
    source = of_lease(acquire(http(broker), "t", 0, "r", "audit"))[0].open()
    with pytest.raises(LeaseError, match="a range was asked for, and the answer is 200"):
        source.read(10, 20)


def test_a_lease_of_another_broker_is_not_taken_for_a_local_one(broker: FakeBroker) -> None:
    lease = acquire(http(broker), "t", 0, "r", "audit")
    assert lease.local_links() is not None
    assert replace(lease, lease_id="other").local_links() is None


def test_parts_travel_in_pieces_and_are_checked(broker: FakeBroker, tmp_path: Path) -> None:
    lease = acquire(http(broker), "t", 0, "r", "compact")
    path = tmp_path / "part"
    path.write_bytes(b"x" * (3 * 1024 * 1024 + 5))
    size, digest = path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()
    lease.put_part(0, str(path), size, digest)
    assert (Path(lease.details["parts_dir"]) / f"{0:020d}.part").read_bytes() == path.read_bytes()
    with pytest.raises(LeaseError, match=r"refused \(bad_part\)"):
        lease.put_part(0, str(path), size, "0" * 64)


def test_refusals_carry_their_code_and_never_the_token(broker: FakeBroker) -> None:
    with pytest.raises(LeaseError) as caught:
        acquire(BrokerHttp(1, broker.address, "guess"), "t", 0, "r", "audit")
    assert caught.value.code == "unauthorized"
    with pytest.raises(LeaseError) as caught:
        acquire(http(broker), "t", 7, "r", "audit")
    assert caught.value.code == "unknown_partition"
    assert pickle.loads(pickle.dumps(caught.value)).code == "unknown_partition"
    lease = acquire(http(broker), "t", 0, "r", "audit")
    for text in (repr(lease), repr(of_lease(lease)[0]), str(caught.value), repr(lease.broker)):
        assert broker.token not in text


def test_a_broker_that_does_not_answer_is_unreachable() -> None:
    with pytest.raises(LeaseError) as caught:
        acquire(BrokerHttp(4, "127.0.0.1:1", "t"), "t", 0, "r", "audit")
    assert caught.value.code == "unreachable"
    assert "broker 4 at http://127.0.0.1:1" in str(caught.value)


def test_heartbeats_note_what_is_lost(broker: FakeBroker) -> None:
    leases = [acquire(http(broker), "t", 0, f"r{i}", "audit") for i in range(2)]
    beats = Heartbeats(leases)
    beats.beat()
    assert beats.lost == {}
    leases[0].abort("done")
    beats.beat()
    assert list(beats.lost) == [leases[0].lease_id]
    assert "lease_ended" in beats.lost[leases[0].lease_id]
    asked = len(broker.requests)
    beats.beat()
    assert len(broker.requests) == asked + 1, "a lost lease is not asked about again"


def test_a_lost_answer_to_a_commit_is_looked_up(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logyard.spark_jobs.leases.client.COMMIT_LOOK_S", 0)
    lease = acquire(http(broker), "t", 0, "r", "compact")
    decision = {"range_end": 16}
    first = lease.commit(decision, [], 16)

    def lost(self: BrokerHttp, method: str, path: str, *rest: object, **fields: object) -> dict[str, object]:
        if method == "POST":
            raise LeaseError("unreachable", "the connection broke")
        return real(self, method, path)

    real = BrokerHttp.call
    monkeypatch.setattr(BrokerHttp, "call", lost)
    assert lease.commit(decision, [], 16) == first
    ended: Lease = replace(lease, lease_id="never")
    with pytest.raises(LeaseError, match="the connection broke"):
        ended.commit(decision, [], 16)


def test_the_fake_keeps_its_files_to_itself(broker: FakeBroker) -> None:
    lease = acquire(http(broker), "t", 0, "r", "audit")
    home = Path(lease.details["links_dir"]).parent
    assert stat.S_ISDIR(home.stat().st_mode)
    lease.abort("over")
    assert not home.exists()


@pytest.mark.parametrize("says", [2, None])
def test_no_token_is_sent_to_whoever_else_answers_at_a_broker_s_address(
    broker: FakeBroker, says: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("logyard.spark_jobs.leases.broker_http.known_addresses", set())
    broker.reported_id = says
    with pytest.raises(LeaseError, match=r"answers there; no token was sent: set its http\.advertised\.listener") as no:
        acquire(BrokerHttp(1, broker.address, broker.token), "t", 0, "r", "audit")
    assert no.value.code == "unreachable"
    assert broker.tokens_seen == 0
    broker.reported_id = 1
    acquire(BrokerHttp(1, broker.address, broker.token), "t", 0, "r", "audit")
    acquire(BrokerHttp(1, broker.address, broker.token), "t", 0, "r2", "audit")
    assert broker.health_requests == 2, "once it is known it is not asked again"


def test_a_broker_that_does_not_answer_is_waited_for_once(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of a job's thousand leases on a broker behind a half-open connection took up to 20 s to end."""
    alive = acquire(http(broker), "t", 0, "r", "audit")
    away = [replace(alive, broker=replace(http(broker), broker_id=2, address="127.0.0.1:1"))] * 5
    asked: list[int] = []
    real = BrokerHttp.call

    def call(self: BrokerHttp, *arguments: object, **named: object) -> object:
        asked.append(self.broker_id)
        return real(self, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(BrokerHttp, "call", call)
    assert end_leases([*away[:2], alive, *away[2:]], "over") == {2}
    assert asked == [2, 1]
    assert [lease["state"] for lease in broker.leases.values()] == ["aborted"]
    end_run(away, "over")
    assert asked == [2, 1, 2]


def test_what_a_gateway_says_is_no_refusal_of_the_broker() -> None:
    """While a broker restarts, or swaps for longer than a proxy waits: the lease may live, the commit have happened."""

    class Gateway(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say(200, b'{"broker_id": 1}')

        def do_POST(self) -> None:
            self._say(504, b"<html>Gateway Timeout</html>")

        def _say(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Gateway) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(LeaseError, match="a gateway says 504") as caught:
            acquire(BrokerHttp(1, f"127.0.0.1:{server.server_port}", "t"), "t", 0, "r", "audit")
        server.shutdown()
    assert caught.value.code == "unreachable"
