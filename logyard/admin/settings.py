"""The address, security and timeouts of a cluster, read from a mapping such as a connection's extra."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logyard.broker.errors import LogyardError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class BadSettings(LogyardError):
    """A connection's setting is missing or invalid; the text names the key and what is allowed."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Everything that is needed to connect to one cluster. Times are seconds, rates bytes per second.

    `disk_capacities`: bytes of the brokers' disks, one number for all of them or pairs of broker and bytes.
    `broker_ids`: brokers that should run, with host and port ("" and 0 if the setting has only the id).
    """

    bootstrap: tuple[str, ...]
    zookeeper: str | None = None
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_password: str | None = field(default=None, repr=False)
    ssl_check_hostname: bool = True
    request_timeout_s: float = 10.0
    total_timeout_s: float = 60.0
    throttle: int | None = None
    disk_capacities: int | tuple[tuple[int, int], ...] | None = None
    cluster_file: str | None = None
    broker_ids: tuple[tuple[int, str, int], ...] = ()
    broker_start_command: tuple[str, ...] = ()
    broker_stop_command: tuple[str, ...] = ()
    broker_status_command: tuple[str, ...] = ()

    @classmethod
    def read(
        cls,
        bootstrap: str,
        extra: Mapping[str, Any] | None = None,
        *,
        username: str | None = None,
        password: str | None = None,
    ) -> "ClusterSettings":
        """Read settings; empty values count as absent. Raises BadSettings."""
        given = {key: value for key, value in (extra or {}).items() if value not in (None, "", [], ())}
        servers = tuple(part.strip() for part in bootstrap.split(",") if part.strip())
        if not servers:
            raise BadSettings("no bootstrap servers: give host:port[,host:port…] as the connection's host")
        protocol = str(given.get("security_protocol", "PLAINTEXT")).upper()
        if protocol not in PROTOCOLS:
            raise BadSettings(f"security_protocol {protocol!r}: one of {', '.join(PROTOCOLS)} is expected")
        mechanism = given.get("sasl_mechanism")
        if protocol.startswith("SASL") and mechanism not in MECHANISMS:
            raise BadSettings(f"sasl_mechanism {mechanism!r}: one of {', '.join(MECHANISMS)} is expected")

        def text(key: str) -> str | None:
            return str(given[key]) if key in given else None

        return cls(
            bootstrap=servers,
            security_protocol=protocol,
            sasl_mechanism=mechanism,
            username=username or None,
            password=password or None,
            ssl_check_hostname=_truth("ssl_check_hostname", given.get("ssl_check_hostname", True)),
            throttle=round(_number("throttle", given["throttle"])) if "throttle" in given else None,
            disk_capacities=_capacities(given.get("disk_capacities")),
            broker_ids=tuple(_broker(item) for item in _listed("broker_ids", given)),
            broker_start_command=tuple(str(item) for item in _listed("broker_start_command", given)),
            broker_stop_command=tuple(str(item) for item in _listed("broker_stop_command", given)),
            broker_status_command=tuple(str(item) for item in _listed("broker_status_command", given)),
            zookeeper=text("zookeeper"),
            ssl_cafile=text("ssl_cafile"),
            ssl_certfile=text("ssl_certfile"),
            ssl_keyfile=text("ssl_keyfile"),
            ssl_password=text("ssl_password"),
            cluster_file=text("cluster_file"),
            request_timeout_s=_number("request_timeout_s", given.get("request_timeout_s", 10)),
            total_timeout_s=_number("total_timeout_s", given.get("total_timeout_s", 60)),
        )

    def security(self) -> dict[str, Any]:
        """The security settings under kafka-python's names, without those that are not set. Contains secrets."""
        names = ("security_protocol", "sasl_mechanism", "username", "password", "ssl_cafile", "ssl_certfile")
        found = {name: getattr(self, name) for name in (*names, "ssl_keyfile", "ssl_password", "ssl_check_hostname")}
        return {name: value for name, value in found.items() if value is not None}

    def expected_brokers(self) -> dict[int, tuple[str, int]]:
        """The brokers that should run, id → (host, port): from the cluster file, else the list of ids ("" and 0).

        Raises BadSettings if the cluster file does not parse. Empty if neither is given.
        """
        if self.cluster_file is None:
            return {broker: (host, port) for broker, host, port in self.broker_ids}
        try:
            content = json.loads(Path(self.cluster_file).read_text())
            return {int(b["id"]): (str(b["host"]), int(b["port"])) for b in content["brokers"]}
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise BadSettings(
                f"cluster_file {self.cluster_file}: the cluster.json of `logyard cluster start` is expected ({problem})"
            ) from None


def _listed(key: str, given: Mapping[str, Any]) -> list[Any]:
    """Parse a list, or JSON text of one (forms carry text)."""
    value = given.get(key, [])
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            value = None
    if isinstance(value, int) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, (list, tuple)):
        raise BadSettings(f'{key}: a JSON list is expected, such as [1, 2, 3] or ["ssh", "{{host}}", …]')
    return list(value)


def _broker(item: Any) -> tuple[int, str, int]:
    """Parse a broker's id, or `id@host:port` with the address to use while no other source has one."""
    broker, _, address = str(item).partition("@")
    host, _, port = address.rpartition(":")
    if not broker.isdecimal() or (address and not (host and port.isdecimal())):
        raise BadSettings(f'broker_ids {item!r}: an id is expected, such as 1, or "1@broker-1:9092"')
    return int(broker), host.strip("[]"), int(port or 0)


def _capacities(value: Any) -> int | tuple[tuple[int, int], ...] | None:
    """Parse a number, an object of them, or JSON text of either (forms carry text)."""
    if value in (None, {}):
        return None
    try:
        found = json.loads(value) if isinstance(value, str) else value
        if isinstance(found, Mapping):
            return tuple(sorted((int(broker), int(size)) for broker, size in found.items())) or None
        return int(found)
    except (TypeError, ValueError):
        raise BadSettings(
            f'disk_capacities {value!r}: bytes are expected, or a JSON object such as {{"1": 2000000000000}}'
        ) from None


def _number(key: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise BadSettings(f"{key} {value!r}: a number is expected") from None
    if number < 0:
        raise BadSettings(f"{key} {value!r}: a number of at least 0 is expected")
    return number


def _truth(key: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise BadSettings(f"{key} {value!r}: true or false is expected")
