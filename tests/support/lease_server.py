"""A broker's HTTP side for leases (docs/leases.md) over plain directories, for tests of the jobs.

    directory = write_partition(tmp_path, "t-0", [batches])  # segment_files.py
    with FakeBroker(1, {("t", 0): FakeReplica(directory, True)}) as broker:
        lease = acquire(BrokerHttp(1, broker.address, broker.token), "t", 0, "run", "audit")

It refuses every request that breaks the protocol. `broker.requests` has what was asked, `broker.expire()` ends all
leases; a replica's fields (`topic_id`, `log_start`, `epochs`) are what the broker says of it.
"""

import hashlib
import json
import os
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.batches import headers_of, read_back
from tests.support.segment_files import index_log

TTL_MS_MAX = 600_000
LINKING_MS = 3  # how long a broker takes to link the files; the lease lasts from then on


class Refused(Exception):
    def __init__(self, status: int, code: str, message: str = "no") -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass
class FakeReplica:
    """One partition's directory and what the broker would know of it."""

    directory: Path
    is_leader: bool
    leader_epoch: int = 0
    clean_offset: int = 0
    high_watermark: int | None = None
    isr: tuple[int, ...] = ()
    producers: list[dict[str, Any]] = field(default_factory=list)
    aborted: list[dict[str, Any]] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    topic_id: str = "AAAAAAAAAAAAAAAAAAAAAQ"
    epochs: tuple[tuple[int, int], ...] = ((0, 0),)
    log_start: int = 0

    def logs(self) -> list[Path]:
        return sorted(self.directory.glob("*.log"))


class FakeBroker:
    """One broker's HTTP side; `with` starts and stops it. `hidden` answers with paths no job can see, so that all
    goes over HTTP; `keeps_time` ends leases whose time to live has passed."""

    def __init__(
        self,
        broker_id: int,
        replicas: dict[tuple[str, int], FakeReplica],
        *,
        hidden: bool = False,
        keeps_time: bool = False,
    ) -> None:
        self.keeps_time = keeps_time
        self.broker_id, self.replicas, self.hidden = broker_id, replicas, hidden
        # As a proxy between may do: whole files are the answers.
        self.ignores_ranges = False
        self.token = f"token-of-{broker_id}"
        self.reported_id: int | None = broker_id
        self.health_requests = self.tokens_seen = 0
        self.leases: dict[str, dict[str, Any]] = {}
        self.now_ms = 1_700_000_000_000
        self.requests: list[str] = []
        self.held: set[tuple[str, int]] = set()
        self.held_until = 10**9
        self.strays: list[str] = []
        self._lock = threading.Lock()
        self._server = _Server(self)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "FakeBroker":
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        with self._lock:
            self.requests.append(f"{method} {path}")
            url = urlsplit(path)
            words = url.path.strip("/").split("/")
            if (method, words) == ("POST", ["leases"]):
                return 201, json.dumps(self._take(json.loads(body))).encode()
            if (method, words) == ("GET", ["partitions"]):
                return 200, json.dumps({"broker_id": self.broker_id, "strays": self.strays}).encode()
            if (method, words[0]) == ("GET", "partitions"):
                return 200, json.dumps(self._status(words[1], int(words[2]))).encode()
            lease = self.leases.get(words[1])
            if words[0] != "leases" or lease is None:
                raise Refused(404, "unknown_lease")
            if method == "GET" and len(words) == 2:
                return 200, json.dumps(self._summary(lease)).encode()
            if method == "GET":
                return self._read(lease, words[3:], headers)
            if method == "PUT":
                generation = parse_qs(url.query)["generation"][0]
                return self._put(lease, int(words[3]), int(generation), headers, body)
            asked = json.loads(body)
            if asked["generation"] != lease["generation"]:
                raise Refused(409, "wrong_generation")
            verb = {"heartbeat": self._heartbeat, "commit": self._commit, "abort": self._abort}[words[2]]
            return 200, json.dumps(verb(lease, asked)).encode()

    def expire(self) -> None:
        """End every lease as if its time to live had passed."""
        for lease in self.leases.values():
            if lease["state"] == "active":
                self._end(lease, "expired")

    # --- the protocol ------------------------------------------------------------------------------------------------

    def _take(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked.get("ttl_ms", 60_000) > TTL_MS_MAX:
            raise Refused(400, "invalid_request", "ttl_ms: too many")
        replica = self._leasable(asked)
        lease_id = hashlib.md5(os.urandom(8), usedforsecurity=False).hexdigest()
        home = replica.directory / ".leases" / lease_id
        (home / "links").mkdir(parents=True)
        (home / "parts").mkdir()
        (home / "lease.json").write_text(json.dumps({"lease_id": lease_id}))
        root = "/nowhere" if self.hidden else str(home)
        lease = {
            "lease_id": lease_id,
            "generation": time.time_ns() // 1000,
            "state": "active",
            "run_id": asked["run_id"],
            "purpose": asked["purpose"],
            "topic": asked["topic"],
            "partition": asked["partition"],
            "links_dir": f"{root}/links",
            "parts_dir": f"{root}/parts",
            **self._description(replica, compacting=asked["purpose"] == "compact"),
        }
        for segment in lease["segments"]:
            for kind, size in segment["files"].items():
                if size:
                    name = f"{segment['base_offset']:020d}.{kind}"
                    os.link(replica.directory / name, home / "links" / name)
        ttl_ms = asked.get("ttl_ms", 60_000)
        lease["expires_at_ms"] = self.now_ms + LINKING_MS + ttl_ms
        self.leases[lease_id] = {**lease, "home": home, "replica": replica, "result": None, "ttl_s": ttl_ms / 1000}
        self._renew(self.leases[lease_id])
        return lease

    def _renew(self, lease: dict[str, Any]) -> None:
        lease["until"] = time.monotonic() + lease["ttl_s"]

    def _leasable(self, asked: dict[str, Any]) -> FakeReplica:
        """The replica that is asked for; raises Refused."""
        key = (asked["topic"], asked["partition"])
        replica = self.replicas.get(key)
        if replica is None:
            raise Refused(404, "unknown_partition")
        if asked["purpose"] == "compact":
            if key in self.held and len(self.requests) < self.held_until:
                raise Refused(409, "lease_held")
            policy = replica.config.get("cleanup.policy", "compact")
            if "compact" not in policy:
                raise Refused(409, "not_compacted", f"cleanup.policy is {policy}")
        return replica

    def _description(self, replica: FakeReplica, *, compacting: bool) -> dict[str, Any]:
        """What a lease says about the log."""
        segments = self._segments(replica)
        end = segments[-1]["last_offset"] + 1
        watermark = end if replica.high_watermark is None else replica.high_watermark
        end_offset = min(watermark, segments[-1]["base_offset"]) if compacting else watermark
        wanted = [s for s in segments if not compacting or (not s["active"] and s["base_offset"] < end_offset)]
        return {
            "topic_id": replica.topic_id,
            "cluster_id": "fake",
            "broker_id": self.broker_id,
            "leader_epoch": replica.leader_epoch,
            "is_leader": replica.is_leader,
            "isr": list(replica.isr),
            "now_ms": self.now_ms,
            "log_start_offset": replica.log_start,
            "log_end_offset": end,
            "high_watermark": watermark,
            "last_stable_offset": watermark,
            "clean_offset": replica.clean_offset,
            "first_dirty_at_ms": -1,
            "end_offset": end_offset,
            "directory": str(replica.directory),
            "segments": wanted,
            "leader_epochs": [list(entry) for entry in replica.epochs],
            "producers": replica.producers,
            "aborted_transactions": replica.aborted,
            "config": {
                "cleanup.policy": "compact",
                "segment.bytes": 2**30,
                "segment.index.bytes": 10 * 2**20,
                "min.cleanable.dirty.ratio": 0.5,
                "max.compaction.lag.ms": 2**63 - 1,
                "delete.retention.ms": 86_400_000,
                **replica.config,
            },
        }

    def _status(self, topic: str, partition: int) -> dict[str, Any]:
        replica = self.replicas.get((topic, partition))
        if replica is None:
            raise Refused(404, "unknown_partition")
        end = self._segments(replica)[-1]["last_offset"] + 1
        watermark = end if replica.high_watermark is None else replica.high_watermark
        return {
            "topic_id": replica.topic_id,
            "is_leader": replica.is_leader,
            "isr": list(replica.isr),
            "leader_epoch": replica.leader_epoch,
            "log_start_offset": replica.log_start,
            "log_end_offset": end,
            "high_watermark": watermark,
            "last_stable_offset": watermark,
            "leader_epochs": [list(entry) for entry in replica.epochs],
        }

    def _segments(self, replica: FakeReplica) -> list[dict[str, Any]]:
        logs = replica.logs()
        rows = []
        for log in logs:
            batches = headers_of(log.read_bytes())
            active = log == logs[-1]
            kinds = ["log"] if active else ["log", "index", "timeindex", "txnindex"]
            sizes = {kind: log.with_suffix(f".{kind}") for kind in kinds}
            rows.append(
                {
                    "base_offset": int(log.stem),
                    "last_offset": batches[-1].last,
                    "size": log.stat().st_size,
                    "max_timestamp": max(b.max_timestamp for b in batches),
                    "mtime_ms": 0,
                    "active": active,
                    "files": {kind: path.stat().st_size if path.exists() else 0 for kind, path in sizes.items()},
                }
            )
        return rows

    def _summary(self, lease: dict[str, Any]) -> dict[str, Any]:
        return {key: lease.get(key) for key in ("lease_id", "generation", "state", "run_id", "purpose", "result")}

    def _active(self, lease: dict[str, Any]) -> None:
        if self.keeps_time and lease["state"] == "active" and time.monotonic() > lease["until"]:
            self._end(lease, "expired")
        if lease["state"] != "active":
            raise Refused(409, "lease_ended", f"it is {lease['state']}")
        self._renew(lease)

    def _heartbeat(self, lease: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
        self._active(lease)
        return self._summary(lease)

    def _abort(self, lease: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
        if lease["state"] == "active":
            self._end(lease, "aborted")
        return self._summary(lease)

    def _end(self, lease: dict[str, Any], state: str) -> None:
        lease["state"] = state
        home: Path = lease["home"]
        for path in sorted(home.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        home.rmdir()

    def _read(self, lease: dict[str, Any], words: list[str], headers: dict[str, str]) -> tuple[int, bytes]:
        self._active(lease)
        base, kind = int(words[0]), words[1]
        size = next(s["files"].get(kind, 0) for s in lease["segments"] if s["base_offset"] == base)
        data = (lease["home"] / "links" / f"{base:020d}.{kind}").read_bytes()[:size]
        first, last = (int(n) for n in headers["Range"].removeprefix("bytes=").split("-"))
        if first >= size:
            raise Refused(416, "range_wanted")
        return (200, data) if self.ignores_ranges else (206, data[first : last + 1])

    def _put(
        self, lease: dict[str, Any], base: int, generation: int, headers: dict[str, str], body: bytes
    ) -> tuple[int, bytes]:
        self._active(lease)
        if generation != lease["generation"]:
            raise Refused(409, "wrong_generation")
        if hashlib.sha256(body).hexdigest() != headers["X-Content-SHA256"]:
            raise Refused(422, "bad_part")
        (lease["home"] / "parts" / f"{base:020d}.part").write_bytes(body)
        return 201, json.dumps({"base_offset": base, "size": len(body)}).encode()

    def _commit(self, lease: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
        if lease["state"] == "committed":
            return dict(lease["result"])
        self._active(lease)
        replica: FakeReplica = lease["replica"]
        if asked["leader_epoch"] != replica.leader_epoch:
            raise Refused(409, "fenced")
        assert asked["clean_offset"] == asked["decision"]["range_end"] <= lease["end_offset"]
        leased = {s["base_offset"]: s for s in lease["segments"]}
        bases = list(leased)
        for group in asked["groups"]:
            members, part = group["segments"], group["part"]
            at = bases.index(members[0])
            assert bases[at : at + len(members)] == members, "a group is adjacent leased segments"
            self._check_part(lease["home"] / "parts" / f"{members[0]:020d}.part", part, leased[members[-1]])
        before = len(replica.logs())
        for group in asked["groups"]:
            for base in group["segments"]:
                for path in replica.directory.glob(f"{base:020d}.*"):
                    path.unlink()
            log = replica.directory / f"{group['segments'][0]:020d}.log"
            (lease["home"] / "parts" / f"{group['segments'][0]:020d}.part").rename(log)
            index_log(log)
        replica.clean_offset = asked["clean_offset"]
        lease["result"] = {"state": "committed", "segments_before": before, "segments_after": len(replica.logs())}
        self._end(lease, "committed")
        return dict(lease["result"])

    def _check_part(self, path: Path, part: dict[str, Any], last: dict[str, Any]) -> None:
        data = path.read_bytes() if path.exists() else b""
        if (len(data), hashlib.sha256(data).hexdigest()) != (part["size"], part["sha256"]):
            raise Refused(422, "bad_part")
        batches = read_back(data)
        assert all(b.crc_ok for b in batches)
        assert all(a.last < b.base for a, b in pairwise(batches))
        assert batches[-1].last == part["last_offset"] == last["last_offset"]
        assert sum(len(b.records) for b in batches) == part["records"]


class _Server(ThreadingHTTPServer):
    """The HTTP server of one broker, on a free port of loopback."""

    def __init__(self, broker: "FakeBroker") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.broker = broker


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def _serve(self, method: str) -> None:
        broker = self.server.broker
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        broker.tokens_seen += "Authorization" in self.headers
        try:
            if self.path == "/health":
                broker.health_requests += 1
                self._send(200, json.dumps({"broker_id": broker.reported_id}).encode())
                return
            if self.headers.get("Authorization") != f"Bearer {broker.token}":
                raise Refused(401, "unauthorized")
            status, answer = broker.answer(method, self.path, dict(self.headers), body)
        except Refused as refused:
            status = refused.status
            answer = json.dumps({"error": refused.code, "message": str(refused)}).encode()
        self._send(status, answer)

    def _send(self, status: int, answer: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
