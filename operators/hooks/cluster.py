"""The connection type `logyard`: a cluster's bootstrap servers, ZooKeeper, security, and how a broker is started."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

from logyard.admin.connector import Connector, RealConnector
from logyard.admin.errors import ApiError, ErrorCode
from logyard.admin.ports import ClusterUnreachable, DescribingClient, Ensemble, Launcher, Pause
from logyard.admin.settings import BadSettings, ClusterSettings
from logyard.login import http
from logyard.login.oauth import NoToken
from logyard.operators.airflow_names import BaseHook, conf, mask_secret

CONFIG_SECTION = "logyard"
HTTP_ADDRESS = "http.advertised.listener"
# Ours; the official Kafka provider's, and connections without a type of their own, are used as they are.
CONNECTION_TYPES = ("logyard", "kafka", "generic")
_TEST_PATIENCE_S = 8.0


class ClusterHook(BaseHook):
    """A cluster, as one Airflow connection describes it.

    The connection's host holds the bootstrap servers (with the port of each one, or one name and the connection's
    port), login and password the SASL credentials, extra the fields that `provider_info` declares.

    :param logyard_conn_id: the connection.
    """

    conn_name_attr = "logyard_conn_id"
    default_conn_name = "logyard_default"
    conn_type = CONNECTION_TYPES[0]
    hook_name = "Logyard"

    # Opens clients; tests replace it by the in-memory twin.
    connector: ClassVar[Connector] = RealConnector()

    def __init__(self, logyard_conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.logyard_conn_id = logyard_conn_id
        self._settings: ClusterSettings | None = None

    @property
    def settings(self) -> ClusterSettings:
        """The connection's settings. Raises BadSettings."""
        if self._settings is None:
            self._settings = read_connection(self.get_connection(self.logyard_conn_id))
        return self._settings

    async def asettings(self) -> ClusterSettings:
        """The same for a trigger, where the synchronous look-up would block the event loop."""
        if self._settings is None:
            self._settings = read_connection(await self._looked_up())
        return self._settings

    async def _looked_up(self) -> Any:
        if hasattr(BaseHook, "aget_connection"):
            return await self.aget_connection(self.logyard_conn_id)
        return await asyncio.to_thread(self.get_connection, self.logyard_conn_id)  # before Airflow 3.1

    def get_conn(self) -> DescribingClient:
        """A client; it connects at its first request. The caller closes it."""
        return self.connector.cluster(self.settings)

    @contextmanager
    def client(self, patience_s: float | None = None) -> Iterator[DescribingClient]:
        """A client that is closed at the end of the block. `patience_s`: it gives up so soon, or sooner."""
        if patience_s is None:
            client = self.get_conn()
        else:
            brief = replace(self.settings, total_timeout_s=min(patience_s, self.settings.total_timeout_s))
            client = self.connector.cluster(brief)
        try:
            yield client
        finally:
            client.close()

    @contextmanager
    def ensemble(self) -> Iterator[Ensemble]:
        """A session with the cluster's ZooKeeper. Raises EnsembleUnreachable if the connection names none."""
        ensemble = self.connector.ensemble(self.settings)
        try:
            yield ensemble
        finally:
            ensemble.close()

    def pause(self) -> Pause:
        return self.connector.pause()

    def launcher(self) -> Launcher:
        """How brokers are started: by `[logyard] broker_start_command`, else by the connection's, if that is allowed.

        The same holds for `broker_stop_command`, which ends the process of a broker that hangs, and for
        `broker_status_command`, which asks the broker's own host about it (`admin.witnesses.WORDS`). A user who may
        edit a connection may not run commands on the workers, so the connection's commands are used only with
        `[logyard] allow_connection_launcher`. Raises BadSettings.
        """
        names = ("broker_start_command", "broker_stop_command", "broker_status_command")
        configured = {name: conf.get(CONFIG_SECTION, name, fallback="") or "" for name in names}
        if configured["broker_start_command"]:
            return self.connector.launcher(*(_command(name, text) if text else () for name, text in configured.items()))
        settings = self.settings
        if not settings.broker_start_command:
            raise BadSettings(
                "brokers cannot be started: set broker_start_command in the section [logyard] or in the connection"
            )
        if not conf.getboolean(CONFIG_SECTION, "allow_connection_launcher", fallback=False):
            raise BadSettings(
                "the connection's broker_start_command is not used unless [logyard] allow_connection_launcher is True"
            )
        return self.connector.launcher(
            settings.broker_start_command, settings.broker_stop_command, settings.broker_status_command
        )

    def test_connection(self) -> tuple[bool, str]:
        """Check, in this order: settings, address, TLS, login, rights, controller, HTTP side, ZooKeeper.

        The text of a failure begins with the step.
        """
        try:
            # A person waits for the result: a task may wait longer.
            self._settings = replace(self.settings, total_timeout_s=_TEST_PATIENCE_S)
        except Exception as problem:  # the form shows any error
            return False, f"Settings: {problem}"
        if self.settings.schema_registry_problem:
            return False, f"Settings: {self.settings.schema_registry_problem}"
        try:
            with self.client() as client:
                snapshot = client.snapshot([], reassignments=True)
                if snapshot.reassignments is None:
                    lacking = self._lacking_right(client)
                    if lacking:
                        return False, lacking
                wrong = self._wrong_with_http(client, sorted(snapshot.brokers))
        except ClusterUnreachable as problem:
            return False, self.connector.why_unreachable(self.settings, problem)
        except Exception as problem:
            return False, f"Brokers: {problem}"
        if snapshot.controller not in snapshot.brokers:
            return False, f"{len(snapshot.brokers)} brokers answer, but the cluster has no controller"
        said = f"{len(snapshot.brokers)} brokers, controller {snapshot.controller}, cluster {snapshot.cluster_id}"
        if snapshot.reassignments is None:
            return False, f"{said}; but the controller does not answer, or refuses, a request for reassignments"
        if wrong:
            return False, wrong
        if self.settings.zookeeper is None:
            return True, f"{said}; no ZooKeeper is given: tasks that need it will fail"
        return self._test_zookeeper(said, set(snapshot.brokers), snapshot.cluster_id)

    def _wrong_with_http(self, client: DescribingClient, brokers: Sequence[int]) -> str:
        """Which step fails at the first broker with a secured HTTP side, which Spark jobs need; else ""."""
        for broker in brokers:
            try:
                known = client.broker_configs(broker).get(HTTP_ADDRESS)
            except (ApiError, ClusterUnreachable):
                continue  # jobs say what they lack; other tasks do not need it
            address = None if known is None else known.value
            if address is not None and address.startswith(http.HTTPS):
                try:
                    failed = http.failing_step(address, http.of(self.settings))
                except (BadSettings, NoToken) as problem:
                    failed = str(problem)
                return f"HTTP side of broker {broker}, which Spark jobs need: {failed}" if failed else ""
        return ""

    def _lacking_right(self, client: DescribingClient) -> str:
        """The right that this login lacks, if that is why the controller refuses; else ""."""
        try:
            client.list_reassignments()
        except ApiError as refusal:
            if refusal.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                return (
                    f"Rights: the login as {self.settings.user} works, but lacks Describe on the cluster, which tasks "
                    "need; those that change something need Alter on it too"
                )
        except ClusterUnreachable:
            pass  # said below
        return ""

    def _test_zookeeper(self, said: str, brokers: set[int], cluster_id: str) -> tuple[bool, str]:
        where = self.settings.zookeeper
        try:
            with self.ensemble() as ensemble:
                view = ensemble.controller()
        except Exception as problem:
            return False, f"{said}; ZooKeeper: {problem}"
        if not view.brokers:
            return False, f"{said}; ZooKeeper {where} has no broker: is the chroot missing in its address?"
        if view.cluster_id and cluster_id and view.cluster_id != cluster_id:
            # Two clusters often have brokers with the same ids.
            return False, f"{said}; ZooKeeper {where} belongs to another cluster, {view.cluster_id}"
        if set(view.brokers) != brokers:
            return (
                False,
                f"{said}; ZooKeeper {where} has brokers {sorted(view.brokers)}: does it belong to another cluster?",
            )
        return True, f"{said}; ZooKeeper agrees, controller epoch {view.epoch}"


def read_connection(connection: Any) -> ClusterSettings:
    """Settings of an Airflow connection. Raises BadSettings, also where it is of another service's type: a form may
    name it."""
    if (connection.conn_type or "generic") not in CONNECTION_TYPES:
        raise BadSettings(
            f"connection {connection.conn_id} is of the type {connection.conn_type}: one of "
            f"{', '.join(CONNECTION_TYPES)} is expected"
        )
    host = connection.host or ""
    if connection.port and "," not in host and ":" not in host:
        host = f"{host}:{connection.port}"
    settings = ClusterSettings.read(host, _extra(connection), username=connection.login, password=connection.password)
    # Airflow masks extras by their names; a key as PEM text or a line of JAAS has none that it knows.
    for secret in settings.secrets():
        mask_secret(secret)
    return settings


def _extra(connection: Any) -> Mapping[str, Any]:
    """The connection's extra; Airflow refuses one that is no JSON object as it is stored, or as it is read."""
    try:
        extra = connection.extra_dejson
    except ValueError:
        extra = None
    if not isinstance(extra, Mapping):
        raise BadSettings(f"connection {connection.conn_id}: its extra is no JSON object")
    return extra


def _command(name: str, text: str) -> list[str]:
    try:
        command = json.loads(text)
    except ValueError:
        command = None
    if not isinstance(command, list) or not all(isinstance(argument, str) for argument in command):
        raise BadSettings(f"[logyard] {name}: expected a JSON list of arguments")
    return command
