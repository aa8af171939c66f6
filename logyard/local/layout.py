"""The files in a local cluster's directory: its settings, each broker's server.properties, and cluster.json."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from logyard.local import files
from logyard.local.errors import LocalError
from logyard.local.ports import HOST

# Keys that the launcher sets for each broker; a --config with one of these would have no effect.
OWN_KEYS = ("broker.id", "node.id", "listeners", "advertised.listeners", "zookeeper.connect")

NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of the cluster; kept so that restarts use the same ones.

    `zookeeper` is host:port[/chroot] of one that already runs; None: start one. `secure`: TLS, log-ins and ACLs.
    """

    brokers: int
    zookeeper: str | None = None
    port_base: int | None = None
    config: dict[str, str] = field(default_factory=dict)
    secure: bool = False

    def check(self) -> None:
        """Raise LocalError on invalid options."""
        if not 1 <= self.brokers <= 100:
            raise LocalError(f"--brokers {self.brokers}: between 1 and 100 brokers can be started")
        if self.port_base is not None and not 1024 <= self.port_base <= 65535 - self.brokers:
            raise LocalError(f"--port-base {self.port_base}: between 1024 and {65535 - self.brokers} is allowed")
        for key in self.config:
            if key in OWN_KEYS:
                raise LocalError(f"--config {key}: the launcher sets {key} for each broker; leave it out")

    def port_of(self, broker: int) -> int | None:
        """Return the port that --port-base gives a broker; ZooKeeper's port follows that of the last broker."""
        return None if self.port_base is None else self.port_base + broker

    @property
    def zookeeper_port(self) -> int | None:
        return self.port_of(self.brokers)

    @property
    def ids(self) -> range:
        return range(self.brokers)

    @property
    def replicas(self) -> int:
        """Of topics whose creator names no number, and of Kafka's own."""
        return min(3, self.brokers)

    def durable(self) -> "Settings":
        """The same with a `min.insync.replicas` of one less than the replicas, unless `config` has one."""
        least = max(1, self.replicas - 1)
        return replace(self, config={"min.insync.replicas": str(least), **self.config})


@dataclass(frozen=True, slots=True)
class BrokerEntry:
    """One broker in cluster.json; `pid` and `http_port` are None while it is down."""

    id: int
    pid: int | None
    host: str
    port: int
    http_port: int | None
    log_dirs: list[str]


class Layout:
    """The paths of a cluster's directory, and the launcher's files in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.description = self.directory / "cluster.json"
        self.lock = self.directory / "cluster.lock"
        self._settings = self.directory / "settings.json"

    def broker_home(self, broker: int) -> Path:
        return self.directory / f"broker-{broker}"

    def properties_path(self, broker: int) -> Path:
        return self.broker_home(broker) / "server.properties"

    def log_dirs(self, broker: int, settings: Settings) -> list[str]:
        """Return the broker's log directories; names in `log.dirs` of --config are below the broker's own folder."""
        names = [name.strip() for name in settings.config.get("log.dirs", "data").split(",") if name.strip()]
        home = self.broker_home(broker)
        for name in names:
            if not (home / name).resolve().is_relative_to(home.resolve()):
                raise LocalError(
                    f"--config log.dirs={name}: give names below the broker's own folder, such as data1,data2"
                )
        return [str(home / name) for name in names]

    def settings(self) -> Settings:
        """Return the options of the last start. Raises LocalError if there was none."""
        found = files.read_json(self._settings)
        if found is None:
            raise LocalError(f"no cluster was started in {self.directory}: use `logyard cluster start --dir` first")
        return self._read(found)

    def _read(self, found: object) -> Settings:
        try:
            return Settings(**found)  # type: ignore[arg-type]
        except TypeError:
            raise LocalError(f"{self._settings} is of another version of Logyard: start the cluster anew") from None

    def check_security(self, settings: Settings, *, runs: bool) -> bool:
        """Return whether the cluster has been used without security.

        Raises LocalError if it would lose its security, or get it while it `runs`.
        """
        found = files.read_json(self._settings)
        if found is None:
            return False
        was = self._read(found).secure
        if was and not settings.secure:
            raise LocalError(f"the cluster in {self.directory} is secured: start it with --secure, or remove it")
        if settings.secure and runs and not was:
            raise LocalError(f"the cluster in {self.directory} runs without security: stop it first")
        return not was

    def keep_settings(self, settings: Settings) -> None:
        files.write_json(self._settings, asdict(settings))

    def write_properties(
        self, broker: int, port: int, zookeeper: str, settings: Settings, secured: Mapping[str, str] = NOTHING
    ) -> Path:
        """Write the broker's server.properties and create its log directories. Returns the file's path.

        `secured` are the settings of a secured cluster, with secrets; empty if it is none.
        """
        log_dirs = self.log_dirs(broker, settings)
        for folder in log_dirs:
            Path(folder).mkdir(parents=True, exist_ok=True)
        keys = properties(broker, port, zookeeper, log_dirs, settings, secured)
        lines = ["# Written by `logyard cluster start`; changes are lost at the next one. Use --config."]
        lines += [f"{key}={_escape(value)}" for key, value in keys.items()]
        path = self.properties_path(broker)
        files.write_text(path, "\n".join(lines) + "\n", files.PRIVATE if secured else files.PUBLIC)
        return path

    def write_description(self, zookeeper: str, brokers: list[BrokerEntry], client_file: Path | None = None) -> None:
        """Write cluster.json, in which tools and operators find the cluster's addresses.

        `client_file` has the properties with which a client of a secured cluster logs in.
        """
        bootstrap = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
        description = {"zookeeper": zookeeper, "bootstrap": bootstrap, "brokers": [asdict(one) for one in brokers]}
        if client_file is not None:
            description["command_config"] = str(client_file)
        files.write_json(self.description, description)

    def read_description(self) -> dict[str, Any]:
        """Return the content of cluster.json. Raises LocalError if the cluster is not running."""
        found = files.read_json(self.description)
        if not isinstance(found, dict):
            raise LocalError(f"no cluster runs in {self.directory}: use `logyard cluster start --dir {self.directory}`")
        return found


def properties(
    broker: int, port: int, zookeeper: str, log_dirs: list[str], settings: Settings, secured: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the broker's configuration: Kafka's keys with values for one machine; --config overrides them."""
    replicas = settings.replicas
    protocol = secured.get("security.inter.broker.protocol", "PLAINTEXT")
    keys = {
        "broker.id": str(broker),
        "listeners": f"{protocol}://{HOST}:{port}",
        "advertised.listeners": f"{protocol}://{HOST}:{port}",
        "zookeeper.connect": zookeeper,
        # A killed broker is noticed in seconds, as suits one machine; Kafka's default is 18 s for real networks.
        "zookeeper.session.timeout.ms": "6000",
        # Of topics whose creator names no number; Kafka's default, 1, loses them with any broker.
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "offsets.topic.num.partitions": "8",
        # Kafka's defaults, 3 and 2, would let no transaction begin on fewer brokers.
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(min(2, replicas)),
        "group.initial.rebalance.delay.ms": "0",
        "controlled.shutdown.retry.backoff.ms": "500",
    }
    keys.update(secured)
    keys.update(settings.config)
    keys["log.dirs"] = ",".join(log_dirs)
    return keys


def _escape(value: str) -> str:
    """Escape a value for java.util.Properties: backslashes are doubled, a leading blank is kept."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return "\\" + escaped if escaped.startswith(" ") else escaped
