"""A cluster's metadata over Kafka's protocol: leaders and replicas, and the HTTP address of each broker.

The only importer of kafka-python in spark_jobs, driver only. (Jobs do not import the larger client of logyard.admin, so
they ship without it.)
"""

import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logyard.broker.errors import LogyardError
from logyard.broker.model import TopicPartition
from logyard.login import kafka_python
from logyard.login import security as settings

REQUEST_TIMEOUT_S = 10.0


class ClusterUnreachable(LogyardError):
    """No broker answered, or it refused: the text names the addresses tried and why."""


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """The broker ids of one partition; `leader` is -1 if there is none."""

    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Metadata:
    """A cluster at one moment. `missing`: requested topics that do not exist; `internal`: Kafka's own topics."""

    cluster_id: str
    brokers: tuple[int, ...]
    topics: Mapping[str, Mapping[int, PartitionMetadata]]
    internal: frozenset[str] = frozenset()
    missing: tuple[str, ...] = field(default=())

    def partitions(self, topics: Sequence[str]) -> Iterator[tuple[TopicPartition, PartitionMetadata]]:
        """Yield the partitions of these topics, by name and number."""
        for name in sorted(set(topics)):
            for number, place in sorted(self.topics.get(name, {}).items()):
                yield TopicPartition(name, number), place


class MetadataClient:
    """One connection of kafka-python's admin client; raises ClusterUnreachable."""

    def __init__(self, bootstrap: str, security: Mapping[str, Any]) -> None:
        """:param security: settings by any of the names that `login/security.py` knows; others are ignored.

        Raises BadSettings, and NoToken if the token endpoint gives none.
        """
        login = kafka_python.options(settings.of(security))
        servers = [s.strip() for s in bootstrap.split(",") if s.strip()]
        said = []
        for server in servers:
            try:
                self._admin = _open(server, login)
                return
            except Exception as error:  # whatever the library raises, the next address may do better
                said.append(f"{server}: {str(error) or type(error).__name__}")
        raise ClusterUnreachable(f"no broker answered ({'; '.join(said)}): check addresses, protocol and credentials")

    def close(self) -> None:
        """Close the connection."""
        self._admin.close()

    def look(self, topics: Sequence[str] | None) -> Metadata:
        """Return the cluster's brokers and these topics (all of them for None)."""
        try:
            cluster = self._admin.describe_cluster()
            found = self._admin.describe_topics(list(topics) if topics is not None else None)
        except Exception as error:
            raise ClusterUnreachable(f"metadata: {str(error) or type(error).__name__}") from error
        return metadata_of(cluster, found)

    def broker_config(self, broker_id: int, key: str) -> str | None:
        """Return one config of a broker, asked from the broker itself; None if it has no such key."""
        from kafka.admin import ConfigResource

        try:
            answer = self._admin.describe_configs([ConfigResource("BROKER", str(broker_id))], config_filter="all")
        except Exception as error:
            raise ClusterUnreachable(f"broker {broker_id}: {str(error) or type(error).__name__}") from error
        value = answer.get("broker", {}).get(str(broker_id), {}).get(key, {}).get("value")
        return None if value is None else str(value)


def _open(server: str, login: Mapping[str, Any]) -> Any:
    from kafka import KafkaAdminClient

    host, _, port = server.rpartition(":")
    # The library would use all its time on an address that refuses connections.
    socket.create_connection((host.strip("[]"), int(port)), timeout=REQUEST_TIMEOUT_S).close()
    return KafkaAdminClient(
        bootstrap_servers=[server],
        client_id="logyard-spark",
        request_timeout_ms=round(REQUEST_TIMEOUT_S * 1000),
        **login,
    )


def metadata_of(cluster: Mapping[str, Any], topics: Sequence[Mapping[str, Any]]) -> Metadata:
    """Translate the library's answer; a topic with an error of its own is left out."""
    found = {
        str(topic["name"]): {
            int(p["partition_index"]): PartitionMetadata(
                int(p["leader_id"]), tuple(p["replica_nodes"]), tuple(p["isr_nodes"])
            )
            for p in topic["partitions"]
        }
        for topic in topics
        if topic["error_code"] == 0
    }
    return Metadata(
        cluster_id=str(cluster.get("cluster_id") or ""),
        # DescribeCluster says broker_id; Metadata, which the library asks older clusters, says node_id.
        brokers=tuple(sorted(int(b["broker_id"] if "broker_id" in b else b["node_id"]) for b in cluster["brokers"])),
        topics=found,
        internal=frozenset(str(t["name"]) for t in topics if t.get("is_internal")),
        missing=tuple(sorted(str(t["name"]) for t in topics if t["error_code"] != 0)),
    )
