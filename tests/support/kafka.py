"""The original: Apache Kafka 3.9's brokers, in ZooKeeper and in KRaft mode, and its tools, to run beside ours."""

import base64
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

from logyard.local import ports, wire
from logyard.local.cluster import LocalCluster
from logyard.local.errors import LocalError
from logyard.local.layout import Settings
from logyard.local.processes import Processes
from tests.reference import fetch
from tests.support.needed import lacks
from tests.support.real_cluster import RealCluster

REFERENCE = Path(fetch.__file__).parent
# Small, and quick to start: what is measured for speed takes Kafka's own options (tests/benchmarks/reference).
BROKER_JVM = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")
TOOL_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
TOOL_S = 90.0

# What both kinds are started with; the same for all, so that a difference seen is a difference of the brokers.
CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "zookeeper.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "5000",
    "controlled.shutdown.retry.backoff.ms": "500",
    "log.cleaner.enable": "false",
}

# Kafka's command-line tools by the class that their scripts run.
TOOLS = {
    "acls": "kafka.admin.AclCommand",
    "broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "kafka.tools.ConsoleProducer",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "dump-log": "kafka.tools.DumpLogSegments",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "storage": "kafka.tools.StorageTool",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}


def jars_or_skip(profile: str = "kafka") -> Path:
    """The jars of that profile; skips the test where they cannot be had, fails it under LOGYARD_REQUIRE."""
    try:
        if shutil.which("java") is None:
            raise LocalError("java is missing: install Java 17 or newer to run beside Apache Kafka")
        return fetch.jars(profile)
    except LocalError as error:
        lacks(str(error))


@contextmanager
def running(
    directory: Path,
    kinds: str,
    config: Mapping[str, str] | None = None,
    jvm: Sequence[str] = BROKER_JVM,
    zookeeper: str | None = None,
) -> Iterator[RealCluster]:
    """A cluster on one ZooKeeper; each letter of `kinds` is a broker: K is Apache Kafka, O is ours.

    `zookeeper` is the address of one that runs; None: start one.
    """
    directory.mkdir(parents=True, exist_ok=True)
    kinds_file(directory).write_text(kinds)
    cluster = cluster_at(directory, jvm)
    replicas = str(min(3, len(kinds)))
    keys = {**CONFIG, "offsets.topic.replication.factor": replicas, **(config or {})}
    try:
        cluster.start(Settings(len(kinds), zookeeper, None, keys))
        yield RealCluster(cluster)
    finally:
        cluster.stop()


def cluster_at(directory: Path, jvm: Sequence[str] = BROKER_JVM) -> LocalCluster:
    """The cluster of that directory, as `running` starts it; another process may start and stop its brokers too."""
    options = [f"--jvm={option}" for option in jvm]
    either, kinds, jars = str(REFERENCE / "either_broker.py"), str(kinds_file(directory)), str(jars_or_skip())
    command = [sys.executable, "-P", either, "--kinds", kinds, "--jars", jars, *options, "--"]
    return LocalCluster(directory, broker_command=command)


def kinds_file(directory: Path) -> Path:
    """Which kind each broker of that cluster is at its next start."""
    return directory / "kinds"


@contextmanager
def running_kraft(directory: Path, config: Mapping[str, str] | None = None) -> Iterator[str]:
    """One Apache Kafka node in KRaft mode, broker and controller in one; yields its bootstrap address."""
    jars = jars_or_skip()
    processes, chosen = Processes(directory), ports.Ports(directory)
    port, controller = chosen.choose("broker"), chosen.choose("controller")
    keys = {
        **{key: value for key, value in CONFIG.items() if not key.startswith("zookeeper.")},
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "process.roles": "broker,controller",
        "node.id": "0",
        "controller.quorum.voters": f"0@{ports.HOST}:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{ports.HOST}:{port},CONTROLLER://{ports.HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{ports.HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(directory / "data"),
        **(config or {}),
    }
    directory.mkdir(parents=True, exist_ok=True)
    properties = directory / "server.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    tool("storage", "format", "-t", cluster_id, "-c", str(properties))
    command = [*java(BROKER_JVM, "INFO"), "-cp", f"{jars}/*", "kafka.Kafka", str(properties)]
    try:
        processes.start("kraft", command)
        _await_answer(port, processes)
        yield f"{ports.HOST}:{port}"
    finally:
        processes.stop("kraft")


def _await_answer(port: int, processes: Processes) -> None:
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        if not processes.alive("kraft"):
            raise LocalError(processes.failure("kraft"))
        try:
            if wire.ask_metadata(ports.HOST, port).brokers:
                return
        except wire.WireError:
            time.sleep(0.1)
    raise LocalError(f"Kafka in KRaft mode does not serve after 90 s: see {processes.logs}")


def java(options: tuple[str, ...] = TOOL_JVM, level: str = "WARN") -> list[str]:
    """The beginning of a command that runs a class of Kafka's; its log goes to stderr."""
    log4j = f"-Dlog4j.configuration=file:{REFERENCE / 'log4j.properties'}"
    return [shutil.which("java") or "java", *options, log4j, f"-Dreference.level={level}"]


def tool(name: str, *arguments: str, given: str = "", check: bool = True, timeout_s: float = TOOL_S) -> str:
    """Run one of Kafka's tools to its end: what it printed on stdout, then on stderr. With `check`, status 0 it is."""
    command = [*java(), "-cp", f"{jars_or_skip()}/*", TOOLS.get(name, name), *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=timeout_s, check=False)
    said = done.stdout + done.stderr
    assert not check or done.returncode == 0, f"{name} {' '.join(arguments)} ended with {done.returncode}:\n{said}"
    return said


def watch(name: str, *arguments: str, until: str, timeout_s: float = TOOL_S) -> str:
    """Run a tool that never ends, until it has printed `until`: all it printed. Fails the test where it does not."""
    command = [*java(), "-cp", f"{jars_or_skip()}/*", TOOLS.get(name, name), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running:
        ending = Timer(timeout_s, running.kill)
        ending.start()
        said = ""
        try:
            assert running.stdout is not None
            for line in running.stdout:
                said += line
                if until in line:
                    return said
        finally:
            ending.cancel()
            running.kill()
    raise AssertionError(f"{name} {' '.join(arguments)} has not said {until!r} after {timeout_s} s:\n{said}")
