"""Reads the brokers' registrations from ZooKeeper (/brokers/ids), as Kafka's tools do."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from logyard.broker.zk.access import Access
from logyard.broker.zk.kazoo_access import NoConnection, started_client
from logyard.local.errors import LocalError

CONNECT_S = 15.0
IDS = "/brokers/ids"


@dataclass(frozen=True, slots=True)
class Registration:
    """One /brokers/ids/N with its creating transaction, which tells a new registration from an old one."""

    broker: int
    host: str | None
    port: int | None
    http_port: int | None
    czxid: int


class Registrations:
    """A ZooKeeper session that reads the brokers' registrations and the controller."""

    def __init__(self, client: KazooClient, chroot: str = "") -> None:
        self._client = client
        self._chroot = chroot

    def get(self, broker: int) -> Registration | None:
        """Return a broker's registration, None if it has none. Raises LocalError if ZooKeeper fails."""
        found = self._read(f"{IDS}/{broker}")
        return None if found is None else parse(broker, *found)

    def controller(self) -> int | None:
        """Return the broker id in /controller; None if there is no controller, or it cannot be read."""
        found = self._read("/controller")
        return None if found is None else _integer(_fields(found[0]).get("brokerid"))

    def controller_epoch(self) -> int:
        """Return the controller epoch; 0 before the first controller, or if it cannot be read."""
        found = self._read("/controller_epoch")
        return 0 if found is None else _integer(found[0].decode("ascii", "replace")) or 0

    def _read(self, path: str) -> tuple[bytes, int] | None:
        try:
            data, stat = self._client.get(self._chroot + path)
        except NoNodeError:
            return None
        except (KazooException, KazooTimeoutError) as error:
            raise LocalError(f"ZooKeeper fails to read {path}: {type(error).__name__} {error}") from error
        return data, stat.czxid


def parse(broker: int, data: bytes, czxid: int) -> Registration:
    """Decode a registration's JSON. `logyard_http` is host:port; Kafka's own brokers do not have that key.

    One that cannot be decoded counts too: its session is alive, only its addresses are unknown.
    """
    fields = _fields(data)
    http_port = _integer(str(fields.get("logyard_http") or "").rstrip("/").rpartition(":")[2])
    return Registration(broker, fields.get("host"), fields.get("port"), http_port, czxid)


def _fields(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _integer(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


@contextmanager
def connect(zookeeper: str, access: Access) -> Iterator[Registrations]:
    """Open a session with `host:port[,host:port…][/chroot]` for the block. Raises LocalError if that fails."""
    # Without the chroot, because it may not exist yet; the brokers create it.
    hosts, slash, chroot = zookeeper.partition("/")
    try:
        client = started_client(hosts, access, CONNECT_S)
    except NoConnection as problem:
        raise LocalError(f"{problem}; start ZooKeeper, or give another --zookeeper") from None
    try:
        yield Registrations(client, slash + chroot if chroot else "")
    finally:
        client.stop()
        client.close()
