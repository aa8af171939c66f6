"""The address, security and timeouts of a cluster, read from a mapping such as a connection's extra."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from logyard.admin.schema_registry import SchemaRegistry, read_registry
from logyard.login import security
from logyard.login.addresses import has_login as has_login  # operators reach logyard.login by their hooks alone
from logyard.login.security import BadSettings as BadSettings  # raised here too
from logyard.login.security import Security

BOOTSTRAP = "bootstrap.servers"
_ID = re.compile(r"[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class ClusterSettings(Security):
    """Everything that is needed to connect to one cluster. Times are seconds, rates bytes per second.

    `disk_capacities`: bytes of the brokers' disks, one number for all of them or pairs of broker and bytes.
    `http_tokens`: broker → token of its HTTP side, for jobs that lease segments.
    `broker_ids`: brokers that should run, with host and port ("" and 0 if the setting has only the id).
    `asset_server`: the host:port that names the cluster in the URIs of its topics; None: the first of `bootstrap`.
    `waits_for_names`: brokers of which no name resolves are tried for `total_timeout_s` like those that are down, as
    tasks do; else they are given up at once, as Kafka's tools do.
    `schema_registry`: has the schemas of its records; `schema_registry_problem`: why one that is named cannot be
    used. Only who decodes records needs it, so a connection of Kafka's clients works whatever it says of a registry.
    """

    bootstrap: tuple[str, ...]
    zookeeper: str | None = None
    zookeeper_config_file: str | None = None
    request_timeout_s: float = 10.0
    total_timeout_s: float = 60.0
    waits_for_names: bool = True
    throttle: int | None = None
    disk_capacities: int | tuple[tuple[int, int], ...] | None = None
    cluster_file: str | None = None
    broker_ids: tuple[tuple[int, str, int], ...] = ()
    http_tokens: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    broker_start_command: tuple[str, ...] = ()
    broker_stop_command: tuple[str, ...] = ()
    broker_status_command: tuple[str, ...] = ()
    asset_server: str | None = None
    schema_registry: SchemaRegistry | None = None
    schema_registry_problem: str = ""

    @classmethod
    def read(
        cls,
        bootstrap: str,
        extra: Mapping[str, Any] | None = None,
        *,
        username: str | None = None,
        password: str | None = None,
    ) -> "ClusterSettings":
        """Read settings; empty values count as absent. Raises BadSettings.

        Security may be named as `login/security.py` says, `bootstrap` also by `bootstrap.servers` of the extra.
        """
        given = {key: value for key, value in (extra or {}).items() if value not in (None, "", [], ())}
        named = bootstrap or str(given.get(BOOTSTRAP, ""))
        servers = tuple(_server(part.strip()) for part in named.split(",") if part.strip())
        if not servers:
            raise BadSettings("no bootstrap servers: give host:port[,host:port…] as the connection's host")

        def text(key: str) -> str | None:
            return str(given[key]) if key in given else None

        try:
            registry, problem = read_registry(given), ""
        except BadSettings as refusal:
            registry, problem = None, str(refusal)
        return cls(
            bootstrap=servers,
            **security.read(given, username=username, password=password),
            throttle=round(_number("throttle", given["throttle"])) if "throttle" in given else None,
            disk_capacities=_capacities(given.get("disk_capacities")),
            broker_ids=tuple(_broker(item) for item in _listed("broker_ids", given)),
            http_tokens=_tokens(given.get("http_tokens")),
            broker_start_command=tuple(str(item) for item in _listed("broker_start_command", given)),
            broker_stop_command=tuple(str(item) for item in _listed("broker_stop_command", given)),
            broker_status_command=tuple(str(item) for item in _listed("broker_status_command", given)),
            zookeeper=text("zookeeper"),
            zookeeper_config_file=text("zookeeper_config_file"),
            cluster_file=text("cluster_file"),
            asset_server=text("asset_server"),
            schema_registry=registry,
            schema_registry_problem=problem,
            request_timeout_s=_number("request_timeout_s", given.get("request_timeout_s", 10)),
            total_timeout_s=_number("total_timeout_s", given.get("total_timeout_s", 60)),
        )

    def security(self) -> dict[str, Any]:
        """The security settings under our own names, without those that are not set. Contains secrets."""
        found = {one.name: getattr(self, one.name) for one in fields(Security)}
        return {name: value for name, value in found.items() if value is not None}

    def secrets(self) -> list[str]:
        """The secrets that are set."""
        # Without super(): slots make the decorator build another class than the one that super() would mean.
        registry = self.schema_registry.password if self.schema_registry is not None else None
        tokens = [token for _, token in self.http_tokens]
        return [*Security.secrets(self), *tokens, *([registry] if registry else [])]

    def expected_brokers(self) -> dict[int, tuple[str, int]]:
        """The brokers that should run, id → (host, port): from the cluster file, else the list of ids ("" and 0).

        Raises BadSettings if the cluster file does not parse. Empty if neither is given.
        """
        if self.cluster_file is None:
            return {broker: (host, port) for broker, host, port in self.broker_ids}
        try:
            content = json.loads(Path(self.cluster_file).read_text())
            return {int(b["id"]): (str(b["host"]), int(b["port"])) for b in content["brokers"]}
        except (OSError, ValueError, KeyError, TypeError, OverflowError) as problem:
            raise BadSettings(
                f"cluster_file {self.cluster_file}: the cluster.json of `logyard cluster start` is expected ({problem})"
            ) from None


def is_port(text: str) -> bool:
    """Whether this is the number of a TCP port."""
    return _ID.fullmatch(text) is not None and 0 < int(text) < 65536


def _server(text: str) -> str:
    """A broker's address; one that cannot be any would be tried for as long as brokers that are down."""
    host, colon, port = text.rpartition(":")
    if colon and not (host and is_port(port)):
        raise BadSettings(f"bootstrap server {text!r}: host:port is expected")
    return text


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
    if not _ID.fullmatch(broker) or (address and not (host and is_port(port))):
        raise BadSettings(f'broker_ids {item!r}: an id is expected, such as 1, or "1@broker-1:9092"')
    return int(broker), host.strip("[]"), int(port or 0)


def _tokens(value: Any) -> tuple[tuple[str, str], ...]:
    """Parse an object of tokens, or JSON text of one; the error never shows it."""
    try:
        found = json.loads(value) if isinstance(value, str) else value or {}
        return tuple(sorted((str(int(broker)), str(token)) for broker, token in found.items()))
    except (TypeError, ValueError, AttributeError, OverflowError):
        raise BadSettings('http_tokens: a JSON object is expected, such as {"1": "TOKEN"}') from None


def _capacities(value: Any) -> int | tuple[tuple[int, int], ...] | None:
    """Parse a number, an object of them, or JSON text of either (forms carry text)."""
    if value in (None, {}):
        return None
    try:
        found = json.loads(value) if isinstance(value, str) else value
        if isinstance(found, Mapping):
            return tuple(sorted((int(broker), int(size)) for broker, size in found.items())) or None
        return int(found)
    except (TypeError, ValueError, OverflowError):
        raise BadSettings(
            f'disk_capacities {value!r}: bytes are expected, or a JSON object such as {{"1": 2000000000000}}'
        ) from None


def _number(key: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise BadSettings(f"{key} {value!r}: a number is expected") from None
    if not 0 <= number < math.inf:  # with a time-out that is no number, nothing would ever end
        raise BadSettings(f"{key} {value!r}: a number of at least 0 is expected")
    return number
