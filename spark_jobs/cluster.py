"""The cluster under a job: its brokers, their HTTP addresses and tokens, and leases on their replicas. Driver only."""

import argparse
import json
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from typing import Any

from logyard.broker.errors import LogyardError
from logyard.broker.model import TopicPartition
from logyard.login import http
from logyard.login import security as settings
from logyard.login.http import HTTPS
from logyard.spark_jobs.command import say
from logyard.spark_jobs.errors import JobFailed
from logyard.spark_jobs.leases.broker_http import BrokerHttp, LeaseError
from logyard.spark_jobs.leases.client import Lease, acquire
from logyard.spark_jobs.metadata import ClusterUnreachable, Metadata, MetadataClient, PartitionMetadata

HTTP_LISTENER = "http.advertised.listener"
TOKEN_FILE = "http.token"
METADATA_AGE_S = 60.0
# A broker that took longer than the first to give no answer is not asked again for the second: each of what may be
# thousands of replicas would wait for it. One that refuses connections costs nothing, and may be back at any moment.
SLOW_S, SILENT_S = 2.0, 60.0
# How long before the controller is asked about what a broker does not know: it may be hearing of it right now.
WITNESS_PAUSE_S = 1.0
# How long a list of all topics waits for a controller: a broker that dies is controller until its session ends (18 s).
CONTROLLER_S = 25.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of every job that connects to a cluster."""
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT[,…]", help="brokers to ask first")
    parser.add_argument("--topic", action="append", default=[], metavar="TOPIC", help="repeatable")
    parser.add_argument(
        "--cluster-file", metavar="FILE", help="DIR/cluster.json of `logyard cluster start`: bootstrap and tokens"
    )
    parser.add_argument(
        "--token-file",
        metavar="PATTERN",
        help="file that holds a broker's HTTP token; {broker} stands for its id, e.g. /run/secrets/{broker}.token",
    )
    parser.add_argument("--tokens", metavar="FILE", help='JSON file {"BROKER": "TOKEN"}')
    parser.add_argument(
        "--security",
        metavar="FILE",
        help="JSON file with security_protocol, sasl_mechanism, username, password, ssl_*, http_*",
    )
    parser.add_argument("--lease-ttl-s", type=int, default=60, metavar="S", help="time to live of leases (60)")
    parser.add_argument("--output", metavar="FILE", help="write the JSON summary there too")


@dataclass(slots=True)
class Cluster:
    """A cluster's metadata at one moment, as one broker knows it but with all partitions of its topics, and the lease
    API of each broker that answers.

    `witness` asks the controller about topics, as `witnessed` does: without it that one broker is believed.
    """

    metadata: Metadata
    brokers: dict[int, BrokerHttp]
    unreachable: dict[int, str] = field(default_factory=dict)
    ttl_ms: int = 60_000
    now: Callable[[], float] = time.monotonic
    witness: Callable[[Sequence[str] | None], Metadata] | None = None
    _for_runs: dict[tuple[int, str, str, str], BrokerHttp] = field(default_factory=dict, repr=False)
    # Until when a broker counts as silent, and why.
    _silent: dict[int, tuple[float, str]] = field(default_factory=dict, repr=False)
    # Topics that are learned side by side must not replace each other.
    _learning: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def partitions(self, topics: Sequence[str]) -> list[tuple[TopicPartition, PartitionMetadata]]:
        """Return the partitions of these topics; raises JobFailed for a topic that does not exist, or as `learn`
        does."""
        if unknown := [t for t in topics if t not in self.metadata.topics]:
            self.learn(unknown)
        missing = [t for t in topics if t not in self.metadata.topics]
        if missing:
            raise JobFailed(f"topic {missing[0]} does not exist on {self.metadata.cluster_id}")
        return list(self.metadata.partitions(topics))

    def learn(self, topics: Sequence[str]) -> None:
        """Take over what the controller knows of topics that this metadata lacks, whole or in part: the broker that was
        asked may have just started, or not have heard of them yet.

        Raises JobFailed where it cannot be told now, NotTold where this login may not know.
        """
        if self.witness is None:
            return
        time.sleep(WITNESS_PAUSE_S)
        try:
            told = self.witness(topics)
        except ClusterUnreachable as error:
            raise JobFailed(
                f"topic {topics[0]}: a broker does not know all of it, and it cannot be told now whether it exists:"
                f" {error}"
            ) from error
        with self._learning:
            self.metadata = replace(self.metadata, topics={**self.metadata.topics, **told.topics})

    def learn_all(self) -> None:
        """Take over the controller's list of topics, where nobody has named them: one that the broker that was asked
        has not heard of would be left out without a word. Raises JobFailed where it cannot be told now."""
        if self.witness is None:
            return
        until = self.now() + CONTROLLER_S
        while True:
            try:
                told = self.witness(None)
                break
            except ClusterUnreachable as error:
                if self.now() > until:
                    raise JobFailed(
                        f"it cannot be told now which topics there are: {error}: name the topics, or run it again"
                    ) from error
            time.sleep(WITNESS_PAUSE_S)
        with self._learning:
            self.metadata = replace(self.metadata, topics=told.topics, internal=told.internal, missing=told.missing)

    def lease(self, broker_id: int, tp: TopicPartition, run_id: str, purpose: str) -> Lease:
        """Take a lease on one replica; raises LeaseError (`unreachable` if the broker's HTTP address is not known)."""
        broker = self.brokers.get(broker_id)
        if broker is None:
            reason = self.unreachable.get(broker_id, "it is not in the cluster's metadata")
            raise LeaseError("unreachable", f"broker {broker_id}: {reason}")
        began = self.now()
        until, said = self._silent.get(broker_id, (began, ""))
        if began < until:
            raise LeaseError("unreachable", said)
        try:
            return self._lease(broker, tp, run_id, purpose)
        except LeaseError as error:
            if error.code == "unreachable" and self.now() - began > SLOW_S:
                self._silent[broker_id] = self.now() + SILENT_S, str(error)
            raise

    def _lease(self, broker: BrokerHttp, tp: TopicPartition, run_id: str, purpose: str) -> Lease:
        key = broker.broker_id, run_id, tp.topic, purpose
        known = self._for_runs.get(key)
        if known is not None and known.is_secured:
            try:
                return acquire(known, tp.topic, tp.partition, run_id, purpose, self.ttl_ms)
            except LeaseError as error:
                if error.code != "unauthorized":
                    raise
        # The run is new, or it has ended meanwhile.
        self._for_runs[key] = broker.for_run(run_id, tp.topic, purpose)
        return acquire(self._for_runs[key], tp.topic, tp.partition, run_id, purpose, self.ttl_ms)

    def lease_leader(self, tp: TopicPartition, run_id: str, purpose: str) -> Lease:
        """Take a lease on the leader's replica; raises JobFailed if that fails or the broker no longer leads."""
        place = self.metadata.topics.get(tp.topic, {}).get(tp.partition)
        if place is None:
            raise JobFailed(f"{tp}: the cluster's metadata does not name it: was its topic deleted?")
        leader = place.leader
        try:
            lease = self.lease(leader, tp, run_id, purpose)
        except LeaseError as error:
            raise JobFailed(f"{tp}: no lease on its leader: {error}") from error
        if not lease.is_leader:
            lease.abort("its broker no longer leads")
            raise JobFailed(f"{tp}: broker {leader} no longer leads it: run it again")
        return lease


def connect(arguments: argparse.Namespace) -> Cluster:
    """Return the cluster that the arguments name; raises JobFailed, ClusterUnreachable."""
    bootstrap, security, described = _way(arguments)
    tokens = _Tokens(arguments, described)
    client = MetadataClient(bootstrap, security)
    try:
        seen = client.completed(client.look(arguments.topic or None))
        cluster = Cluster(seen, {}, ttl_ms=arguments.lease_ttl_s * 1000, witness=partial(witnessed, arguments))
        for broker_id in cluster.metadata.brokers:
            try:
                address = client.broker_config(broker_id, HTTP_LISTENER)
                if not address:
                    raise JobFailed(f"it has no config {HTTP_LISTENER} (is it a Logyard broker?)")
                cluster.brokers[broker_id] = _broker(broker_id, address, tokens, security)
            except LogyardError as error:
                cluster.unreachable[broker_id] = str(error)
    finally:
        client.close()
    return cluster


def witnessed(arguments: argparse.Namespace, topics: Sequence[str] | None) -> Metadata:
    """Return these topics (None: all) as the controller knows them; raises as `connect` and `MetadataClient.witnessed`
    do."""
    bootstrap, security, _ = _way(arguments)
    client = MetadataClient(bootstrap, security)
    try:
        return client.witnessed(topics)
    finally:
        client.close()


def _way(arguments: argparse.Namespace) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the brokers to ask first, the settings of the connection, and what the cluster file says; raises
    JobFailed."""
    described = _described(arguments.cluster_file) if arguments.cluster_file else {}
    bootstrap = arguments.bootstrap_server or described.get("bootstrap")
    if not bootstrap:
        raise JobFailed("no brokers: give --bootstrap-server HOST:PORT or --cluster-file DIR/cluster.json")
    return str(bootstrap), _read_json(arguments.security) if arguments.security else {}, described


class RecentCluster:
    """The cluster's metadata, looked at again when it is old: a job that works through many topics runs for hours."""

    def __init__(self, arguments: argparse.Namespace, age_max_s: float = METADATA_AGE_S) -> None:
        """Raises as `connect` does."""
        self._arguments, self._age_max_s = arguments, age_max_s
        self._lock = threading.Lock()
        self._cluster, self._looked = connect(arguments), time.monotonic()

    def look(self) -> Cluster:
        """Return the cluster of now; that of the last look if no broker answers now."""
        with self._lock:
            if time.monotonic() - self._looked > self._age_max_s:
                try:
                    self._cluster = connect(self._arguments)
                except LogyardError as error:
                    say(f"the cluster's metadata is that of the last look: {error}")
                self._looked = time.monotonic()
            return self._cluster


def _broker(broker_id: int, address: str, tokens: "_Tokens", given: Mapping[str, Any]) -> BrokerHttp:
    """Return a broker's lease API: with the log-in of the settings, or with the broker's token if it is plain."""
    if not address.startswith(HTTPS):
        return BrokerHttp(broker_id, _bare(address), tokens.of(broker_id))
    login = http.of(settings.of(given))
    if not login.is_somebody:
        raise JobFailed(
            f"its HTTP side ({address}) asks for a log-in: give --security FILE with http_username and http_password, "
            "or with the certificate or the user of Kafka's protocol"
        )
    return BrokerHttp(broker_id, address.rstrip("/"), "", login.trust, login)


def run_id(job: str) -> str:
    """Return a new name for one run of a job."""
    return f"{job}-{datetime.now(timezone.utc):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}"


class _Tokens:
    """The sources of tokens, in this order: --tokens, --token-file, the log directories in the cluster file."""

    def __init__(self, arguments: argparse.Namespace, described: Mapping[str, Any]) -> None:
        self._given = {str(k): str(v) for k, v in _read_json(arguments.tokens).items()} if arguments.tokens else {}
        self._pattern: str | None = arguments.token_file
        self._directories = {int(b["id"]): list(b.get("log_dirs", [])) for b in described.get("brokers", [])}

    def of(self, broker_id: int) -> str:
        """Return a broker's token; raises JobFailed with the options to give."""
        if str(broker_id) in self._given:
            return _shown(self._given[str(broker_id)].strip(), "--tokens")
        if self._pattern:
            return _read_token(self._pattern.replace("{broker}", str(broker_id)))
        for directory in self._directories.get(broker_id, [])[:1]:
            return _read_token(os.path.join(directory, TOKEN_FILE))
        raise JobFailed(f"no HTTP token for broker {broker_id}: give --token-file, --tokens or --cluster-file")


def _read_token(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return _shown(file.read().strip(), path)
    except (OSError, UnicodeDecodeError) as error:
        raise JobFailed(f"the HTTP token in {path} cannot be read: {type(error).__name__}") from None


def _shown(token: str, where: str) -> str:
    """Return a token that HTTP can carry; else the library's error would show it."""
    if not token.isascii() or not token.isprintable():
        raise JobFailed(f"the HTTP token in {where} has line breaks or other characters that no token has")
    return token


def _described(cluster_file: str) -> dict[str, Any]:
    if not os.path.exists(cluster_file):
        raise JobFailed(
            f"{cluster_file} is not there: a cluster file is for the brokers' own machine; elsewhere give "
            "--bootstrap-server, and --security or --tokens (in Airflow: the connection without cluster_file)"
        )
    return _read_json(cluster_file)


def _read_json(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError) as error:
        raise JobFailed(f"{path}: a JSON file is expected ({error})") from None
    if not isinstance(content, dict):
        raise JobFailed(f"{path}: a JSON object is expected")
    return content


def _bare(address: str) -> str:
    """Return host:port of `http://host:port/` or `host:port`."""
    return address.removeprefix("http://").rstrip("/")
