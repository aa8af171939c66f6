"""The client of the brokers' lease API (docs/leases.md); standard library only, so that executors need nothing more.

A token never appears in a message, a repr or a log line.
"""

import http.client
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, cast
from urllib.parse import quote

from logyard.broker.errors import CorruptData, LogyardError
from logyard.broker.model import TopicPartition

PIECE_BYTES = 1024 * 1024
TIMEOUT_S = 60.0
HEALTH_TIMEOUT_S = 10.0
HEALTH_BYTES_MAX = 64 * 1024
COMMIT_TIMEOUT_S = 600.0
COMMIT_LOOKS = 30
# Codes after which a commit may or may not have happened.
UNSURE = ("unreachable", "commit_in_progress")
COMMIT_LOOK_S = 2.0


class LeaseError(LogyardError):
    """The broker refused, or could not be reached: `code` is one of docs/leases.md, or `unreachable`."""

    def __init__(self, code: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.details = dict(details or {})

    def __reduce__(self) -> tuple[Any, ...]:
        return LeaseError, (self.code, str(self), self.details)


@dataclass(frozen=True, slots=True)
class BrokerHttp:
    """Where one broker serves leases, and its token."""

    broker_id: int
    address: str
    token: str = field(repr=False)

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, timeout_s: float = TIMEOUT_S
    ) -> dict[str, Any]:
        """Send JSON, return JSON; raises LeaseError."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data is not None else {}
        with _Exchange(self, method, path, data, headers, timeout_s) as response:
            return cast(dict[str, Any], _json(response.read()))

    def read(self, path: str, position: int, size: int, into: memoryview) -> int:
        """Read up to `size` bytes from `position` of a leased file into `into`; returns how many were read."""
        headers = {"Range": f"bytes={position}-{position + size - 1}"}
        with _Exchange(self, "GET", path, None, headers, TIMEOUT_S) as response:
            got = 0
            while got < size:
                count = response.readinto(into[got:size])
                if not count:
                    break
                got += count
            return got

    def put(self, path: str, file: BinaryIO, size: int, sha256: str) -> dict[str, Any]:
        """Send a file in pieces; raises LeaseError."""
        headers = {"Content-Length": str(size), "X-Content-SHA256": sha256, "Content-Type": "application/octet-stream"}
        with _Exchange(self, "PUT", path, _pieces(file), headers, COMMIT_TIMEOUT_S) as response:
            return cast(dict[str, Any], _json(response.read()))


# (broker id, address) of brokers that were identified. After a failure a broker is asked again: another process may
# have its port.
_known: set[tuple[int, str]] = set()


def require_own(broker: BrokerHttp) -> None:
    """Ask the server at a broker's address for its broker id, without sending the token; raises LeaseError if it is
    another.

    An address like 127.0.0.1 is a different machine wherever it is used: whatever listens there would get the token.
    """
    if (broker.broker_id, broker.address) in _known:
        return
    host, _, port = broker.address.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", "/health")
        answer: Any = json.loads(connection.getresponse().read(HEALTH_BYTES_MAX))
        said = answer.get("broker_id") if isinstance(answer, dict) else None
    except ValueError:
        said = None
    except (OSError, http.client.HTTPException) as error:
        raise LeaseError(
            "unreachable", f"broker {broker.broker_id} at http://{broker.address}: {error or type(error).__name__}"
        ) from None
    finally:
        connection.close()
    if said != broker.broker_id:
        who = "no broker of Logyard" if said is None else f"broker {said}"
        raise LeaseError(
            "unreachable",
            f"broker {broker.broker_id} says it is at http://{broker.address}, but {who} answers there; no token was "
            "sent: set its http.advertised.listener to an address that this machine reaches it at",
        )
    _known.add((broker.broker_id, broker.address))


class _Exchange:
    """One request on a connection of its own; turns every failure into LeaseError."""

    def __init__(
        self,
        broker: BrokerHttp,
        method: str,
        path: str,
        body: bytes | Iterable[bytes] | None,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> None:
        self._broker, self._method, self._path = broker, method, path
        self._body, self._timeout_s = body, timeout_s
        self._headers = {**headers, "Authorization": f"Bearer {broker.token}"}
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> http.client.HTTPResponse:
        require_own(self._broker)
        host, _, port = self._broker.address.rpartition(":")
        self._connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=self._timeout_s)
        try:
            self._connection.request(self._method, self._path, body=self._body, headers=self._headers)
            response = self._connection.getresponse()
            if response.status >= 400:
                raise _refusal(self._broker, response.status, response.read())
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            _known.discard((self._broker.broker_id, self._broker.address))
            raise LeaseError(
                "unreachable",
                f"broker {self._broker.broker_id} at http://{self._broker.address}: {error or type(error).__name__}",
            ) from None
        except LeaseError:
            self._connection.close()
            raise
        return response

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if self._connection is not None:
            self._connection.close()
        if isinstance(error, (OSError, http.client.HTTPException)):
            raise LeaseError("unreachable", f"broker {self._broker.broker_id}: the connection broke: {error}") from None


def _refusal(broker: BrokerHttp, status: int, body: bytes) -> LeaseError:
    try:
        details = json.loads(body)
        code, message = str(details.pop("error")), str(details.pop("message"))
    except (ValueError, KeyError, TypeError, AttributeError):
        code, message, details = f"http_{status}", "no explanation in the answer", {}
    return LeaseError(code, f"broker {broker.broker_id} refused ({code}): {message}", details)


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise LeaseError("bad_answer", f"the broker's answer is not JSON: {error}") from None


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE_BYTES):
        yield piece


@dataclass(frozen=True, slots=True)
class LeasedSegment:
    """One segment of a lease; `files` gives the leased size of log, index, timeindex, txnindex."""

    base_offset: int
    last_offset: int
    size: int
    max_timestamp: int
    mtime_ms: int
    active: bool
    files: Mapping[str, int]

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "LeasedSegment":
        return cls(
            base_offset=int(row["base_offset"]),
            last_offset=int(row["last_offset"]),
            size=int(row["size"]),
            max_timestamp=int(row["max_timestamp"]),
            mtime_ms=int(row.get("mtime_ms", -1)),
            active=bool(row.get("active", False)),
            files={str(name): int(size) for name, size in row["files"].items()},
        )


@dataclass(frozen=True, slots=True)
class Lease:
    """The answer of POST /leases: typed fields for what jobs decide by, the whole answer in `details`."""

    broker: BrokerHttp
    lease_id: str
    generation: int
    topic: str
    partition: int
    purpose: str
    leader_epoch: int
    is_leader: bool
    end_offset: int
    high_watermark: int
    segments: tuple[LeasedSegment, ...]
    details: Mapping[str, Any] = field(repr=False)

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @classmethod
    def from_json(cls, broker: BrokerHttp, row: Mapping[str, Any]) -> "Lease":
        """Read the answer; raises CorruptData where a field is missing."""
        try:
            return cls(
                broker=broker,
                lease_id=str(row["lease_id"]),
                generation=int(row["generation"]),
                topic=str(row["topic"]),
                partition=int(row["partition"]),
                purpose=str(row["purpose"]),
                leader_epoch=int(row["leader_epoch"]),
                is_leader=bool(row["is_leader"]),
                end_offset=int(row["end_offset"]),
                high_watermark=int(row["high_watermark"]),
                segments=tuple(LeasedSegment.from_json(s) for s in row["segments"]),
                details=dict(row),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptData(f"lease of broker {broker.broker_id}: {error!r}") from error

    @property
    def path(self) -> str:
        return f"/leases/{self.lease_id}"

    def file_path(self, base_offset: int, kind: str) -> str:
        """Return the HTTP path of one leased file."""
        return f"{self.path}/segments/{base_offset}/{kind}"

    def local_links(self) -> str | None:
        """Return the directory of hard links if this process sees the broker's disk, else None."""
        links = str(self.details.get("links_dir", ""))
        return links if links and _is_our_directory(os.path.dirname(links), self.lease_id) else None

    def local_parts(self) -> str | None:
        """Return the directory for replacement files if this process can write to the broker's disk, else None."""
        parts = str(self.details.get("parts_dir", ""))
        if not parts or not _is_our_directory(os.path.dirname(parts), self.lease_id):
            return None
        return parts if os.access(parts, os.W_OK) else None

    def put_part(self, base_offset: int, file_path: str, size: int, sha256: str) -> None:
        """Upload one replacement file; raises LeaseError."""
        with open(file_path, "rb") as file:
            self.broker.put(f"{self.path}/parts/{base_offset}?generation={self.generation}", file, size, sha256)

    def heartbeat(self) -> dict[str, Any]:
        """Renew the lease; raises LeaseError if it has ended."""
        return self.broker.call("POST", f"{self.path}/heartbeat", {"generation": self.generation}, timeout_s=10.0)

    def commit(self, decision: Mapping[str, Any], groups: list[dict[str, Any]], clean_offset: int) -> dict[str, Any]:
        """Commit and wait for the swap; if the answer is lost, ask for the lease's state.

        Raises LeaseError.
        """
        try:
            return self.try_commit(decision, groups, clean_offset)
        except LeaseError as error:
            if error.code not in UNSURE:
                raise
            return self.committed_after_all(error)

    def try_commit(
        self, decision: Mapping[str, Any], groups: list[dict[str, Any]], clean_offset: int
    ) -> dict[str, Any]:
        """Commit and wait for the swap; raises LeaseError, with a code in UNSURE if it may have happened."""
        body = {
            "generation": self.generation,
            "leader_epoch": self.leader_epoch,
            "clean_offset": clean_offset,
            "decision": dict(decision),
            "groups": groups,
        }
        return self.broker.call("POST", f"{self.path}/commit", body, timeout_s=COMMIT_TIMEOUT_S)

    def committed_after_all(self, first: LeaseError) -> dict[str, Any]:
        """Ask for the lease's state until a commit whose answer was lost is done; raises `first` if it did not
        happen."""
        for _ in range(COMMIT_LOOKS):
            time.sleep(COMMIT_LOOK_S)
            try:
                summary = self.broker.call("GET", self.path)
            except LeaseError as error:
                if error.code == "unreachable":
                    continue
                raise first from error
            if summary["state"] == "committed":
                return dict(summary["result"])
            if summary["state"] != "committing":
                break
        raise first

    def abort(self, reason: str) -> None:
        """End the lease; never raises: a lease that cannot be ended expires."""
        try:
            self.broker.call(
                "POST", f"{self.path}/abort", {"generation": self.generation, "reason": reason[:200]}, 10.0
            )
        except LeaseError:
            return


def _is_our_directory(directory: str, lease_id: str) -> bool:
    try:
        with open(os.path.join(directory, "lease.json"), encoding="utf-8") as file:
            return bool(json.load(file).get("lease_id") == lease_id)
    except (OSError, ValueError, AttributeError):
        return False


def acquire(broker: BrokerHttp, topic: str, partition: int, run_id: str, purpose: str, ttl_ms: int = 60_000) -> Lease:
    """Take a lease on one replica; raises LeaseError."""
    body = {"topic": topic, "partition": partition, "run_id": run_id, "purpose": purpose, "ttl_ms": ttl_ms}
    return Lease.from_json(broker, broker.call("POST", "/leases", body))


def end_leases(leases: Iterable[Lease], reason: str) -> None:
    """End every lease that is still alive."""
    for lease in leases:
        lease.abort(reason)


def partition_status(broker: BrokerHttp, topic: str, partition: int) -> dict[str, Any]:
    """Return the broker's status of one replica, without a lease."""
    return broker.call("GET", f"/partitions/{quote(topic)}/{partition}")


def partitions_status(broker: BrokerHttp) -> dict[str, Any]:
    """Return the broker's status of all its replicas, and its stray directories."""
    return broker.call("GET", "/partitions")


def quarantine_replica(broker: BrokerHttp, topic: str, partition: int, reason: str) -> dict[str, Any]:
    """Have a broker set a damaged follower's files aside and fetch the log anew; waits until it is out of the ISR.

    Raises LeaseError (docs/leases.md lists the codes).
    """
    path = f"/partitions/{quote(topic)}/{partition}/quarantine"
    return broker.call("POST", path, {"reason": reason[:200]}, timeout_s=COMMIT_TIMEOUT_S)
