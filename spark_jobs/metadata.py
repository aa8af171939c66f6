"""A cluster's metadata over Kafka's protocol: leaders and replicas, and the HTTP address of each broker.

The only importer of kafka-python in spark_jobs, driver only. (Jobs do not import the larger client of logyard.admin, so
they ship without it.)
"""

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from logyard.broker.errors import ErrorCode, LogyardError
from logyard.broker.model import TopicPartition
from logyard.login import kafka_python
from logyard.login import security as settings

REQUEST_TIMEOUT_S = 10.0
# How many other brokers are asked, until one answers, whether they know the same controller.
OTHERS_ASKED = 2
# How long a broker that has just started may take to hear of the others.
STARTING_S, AGAIN_S = 10.0, 0.25


class ClusterUnreachable(LogyardError):
    """No broker answered, or it refused: the text names the addresses tried and why."""


class NotTold(LogyardError):
    """The login has no right to know."""


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
        """Return the cluster's brokers and these topics (all of them for None), as one broker knows them.

        A broker that has just started, and knows no broker yet, knows no topic either: it is asked again for a while.
        """
        until = time.monotonic() + STARTING_S
        while True:
            try:
                said = self._admin.asked(None, topics)
            except Exception as error:
                raise ClusterUnreachable(f"metadata: {str(error) or type(error).__name__}") from error
            if said["brokers"]:
                return metadata_of(said)
            if time.monotonic() > until:
                raise ClusterUnreachable("metadata: the broker that was asked knows no brokers yet")
            time.sleep(AGAIN_S)

    def witnessed(self, topics: Sequence[str] | None) -> Metadata:
        """Return these topics (all of them for None) as the controller knows them: what is in `missing` does not exist;
        of all topics, those are there that it has no answer for now.

        One broker's silence is no proof (docs/decisions/0021): it may have just started, or not have heard of a topic
        yet. Raises ClusterUnreachable where nobody can tell at this moment, NotTold where this login may not know.
        """
        try:
            said = self._of_controller(topics)
        except LogyardError:
            raise
        except Exception as error:
            raise ClusterUnreachable(f"metadata: {str(error) or type(error).__name__}") from error
        for topic in () if topics is None else said["topics"]:
            code = topic["error_code"]
            if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise NotTold(f"topic {topic['name']}: the brokers do not tell this login whether it exists")
            if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise ClusterUnreachable(f"topic {topic['name']}: the controller's answer is error {code}")
        return metadata_of(said)

    def _of_controller(self, topics: Sequence[str] | None) -> Mapping[str, Any]:
        """Return what the controller's broker answers, unless another broker knows another controller: one that has
        lost ZooKeeper alone goes on to say that it is, and hears of no new topic."""
        controller = int(self._admin.asked(None, [])["controller_id"])
        if controller < 0:
            raise ClusterUnreachable("the cluster has no controller now")
        said: Mapping[str, Any] = self._admin.asked(controller, topics)
        brokers = sorted(int(broker["node_id"]) for broker in said["brokers"])
        if controller not in brokers or said["controller_id"] != controller:
            raise ClusterUnreachable(f"broker {controller} is not, or not yet, controller")
        for broker in [broker for broker in brokers if broker != controller][:OTHERS_ASKED]:
            try:
                known = int(self._admin.asked(broker, [])["controller_id"])
            except Exception:  # it cannot tell; whatever the library raises
                continue
            if known != controller:
                raise ClusterUnreachable(f"broker {broker} knows another controller than broker {controller}")
            break
        return said

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
    from kafka.protocol.metadata import MetadataRequest

    class Admin(KafkaAdminClient):  # type: ignore[misc]  # kafka-python has no types
        def asked(self, broker: int | None, topics: Sequence[str] | None) -> dict[str, Any]:
            """Return the answer to Metadata of a broker (None: of any), about these topics (None: about all)."""
            named = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
            request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
            answer: dict[str, Any] = self._manager.run(lambda: self._manager.send(request, node_id=broker)).to_dict()
            return answer

    host, _, port = server.rpartition(":")
    # The library would use all its time on an address that refuses connections.
    socket.create_connection((host.strip("[]"), int(port)), timeout=REQUEST_TIMEOUT_S).close()
    return Admin(
        bootstrap_servers=[server],
        client_id="logyard-spark",
        request_timeout_ms=round(REQUEST_TIMEOUT_S * 1000),
        **login,
    )


def metadata_of(said: Mapping[str, Any]) -> Metadata:
    """Translate the library's answer; a topic with an error of its own is left out."""
    topics = said["topics"]
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
        cluster_id=str(said.get("cluster_id") or ""),
        brokers=tuple(sorted(int(broker["node_id"]) for broker in said["brokers"])),
        topics=found,
        internal=frozenset(str(t["name"]) for t in topics if t.get("is_internal")),
        missing=tuple(sorted(str(t["name"]) for t in topics if t["error_code"] != 0)),
    )
