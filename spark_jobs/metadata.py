"""A cluster's metadata over Kafka's protocol: leaders and replicas, and the HTTP address of each broker.

Driver only. (Jobs do not import the larger client of logyard.admin, so they ship without it.)
"""

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from logyard.broker.errors import ErrorCode, LogyardError
from logyard.broker.model import TopicPartition
from logyard.login import security as settings
from logyard.login.library.client import Opened, is_refused_login, open_admin
from logyard.login.meanings import meaning, plain, unanswered
from logyard.login.oauth import NoToken
from logyard.login.security import BadSettings, Security

REQUEST_TIMEOUT_S = 10.0
# How many other brokers are asked, until one answers, whether they know the same controller.
OTHERS_ASKED = 2
# How long a broker that has just started may take to hear of the others.
STARTING_S, AGAIN_S = 10.0, 0.25
# Kafka's number of brokers among what has settings.
_BROKER = 4
_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


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
        login = settings.of(security)
        servers = [s.strip() for s in bootstrap.split(",") if s.strip()]
        said, refused = [], False
        for server in servers:
            try:
                self._admin, self._manager = _open(server, login)
                return
            except (BadSettings, NoToken):
                raise  # every server would be asked in the same way
            except Exception as error:  # whatever the library raises, the next address may do better
                why = error.__cause__ if isinstance(error.__cause__, Exception) else error
                refused = refused or is_refused_login(why)
                said.append(f"{server}: {plain(why)}")
        if refused:
            raise ClusterUnreachable(f"the login of {login.user} is refused ({'; '.join(said)})")
        raise ClusterUnreachable(f"no broker answered ({'; '.join(said)}): check addresses, protocol and credentials")

    def close(self) -> None:
        """Close the connection."""
        self._admin.close()

    def _asked(self, broker: int | None, topics: Sequence[str] | None) -> Mapping[str, Any]:
        """Return the answer to Metadata of a broker (None: of any), about these topics (None: about all). Raises the
        library's errors."""
        from kafka.protocol.metadata import MetadataRequest

        named = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=named, allow_auto_topic_creation=False)
        answer: dict[str, Any] = self._manager.run(lambda: self._manager.send(request, node_id=broker)).to_dict()
        return answer

    def look(self, topics: Sequence[str] | None) -> Metadata:
        """Return the cluster's brokers and these topics (all of them for None), as one broker knows them.

        A broker that has just started, and knows no broker yet, knows no topic either: it is asked again for a while.
        """
        until = time.monotonic() + STARTING_S
        while True:
            try:
                said = self._asked(None, topics)
            except Exception as error:
                raise ClusterUnreachable(f"metadata: {unanswered(error)}") from error
            if said["brokers"]:
                return metadata_of(said)
            if time.monotonic() > until:
                raise ClusterUnreachable("metadata: the broker that was asked knows no brokers yet")
            time.sleep(AGAIN_S)

    def completed(self, seen: Metadata) -> Metadata:
        """Return what was seen with the partitions of its topics that the controller knows and the broker that was
        asked has not heard of: what is read without them would look complete. Where nobody can tell who the controller
        is, other brokers' word has to do."""
        topics = dict(seen.topics)
        for told in self._others(sorted(topics), seen.brokers) if topics else ():
            topics |= {name: known for name, known in told.topics.items() if len(known) > len(topics.get(name, ()))}
        return replace(seen, topics=topics)

    def _others(self, topics: Sequence[str], brokers: Sequence[int]) -> list[Metadata]:
        """Return what the controller knows of these topics, or what a few brokers do; nothing, if none answers."""
        left = list(brokers)
        try:
            return [metadata_of(self._of_controller(topics))]
        except Exception:  # there is none now, or it does not answer; whatever the library raises
            with suppress(Exception):
                left.remove(int(self._asked(None, [])["controller_id"]))  # it is not waited for again
        found = []
        for broker in left[: OTHERS_ASKED + 1]:
            with suppress(Exception):
                found.append(metadata_of(self._asked(broker, topics)))
        return found

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
            raise ClusterUnreachable(f"metadata: {unanswered(error)}") from error
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
        controller = int(self._asked(None, [])["controller_id"])
        if controller < 0:
            raise ClusterUnreachable("the cluster has no controller now")
        said: Mapping[str, Any] = self._asked(controller, topics)
        brokers = sorted(int(broker["node_id"]) for broker in said["brokers"])
        if controller not in brokers or said["controller_id"] != controller:
            raise ClusterUnreachable(f"broker {controller} is not, or not yet, controller")
        for broker in [broker for broker in brokers if broker != controller][:OTHERS_ASKED]:
            try:
                known = int(self._asked(broker, [])["controller_id"])
            except Exception:  # it cannot tell; whatever the library raises
                continue
            if known != controller:
                raise ClusterUnreachable(f"broker {broker} knows another controller than broker {controller}")
            break
        return said

    def broker_config(self, broker_id: int, key: str) -> str | None:
        """Return one config of a broker, asked from the broker itself; None if it has no such key."""
        from kafka.protocol.admin import DescribeConfigsRequest

        request = DescribeConfigsRequest(resources=[(_BROKER, str(broker_id), [key])], min_version=1)
        try:
            (answer,) = self._manager.run(lambda: self._manager.send(request, node_id=broker_id)).results
        except Exception as error:
            raise ClusterUnreachable(f"broker {broker_id}: {unanswered(error)}") from error
        if answer.error_code:
            # The library's own call passes over it: a missing right would look like a config that is not there.
            said = answer.error_message or meaning(answer.error_code)
            if answer.error_code == _DENIED:
                said = f"{meaning(_DENIED)}: the login needs DescribeConfigs on it"
            raise ClusterUnreachable(f"broker {broker_id}: {said}")
        return next((None if one.value is None else str(one.value) for one in answer.configs if one.name == key), None)


def _open(server: str, login: Security) -> Opened:
    host, _, port = server.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError("host:port is expected")
    # The library would use all its time on an address that refuses connections.
    socket.create_connection((host.strip("[]"), int(port)), timeout=REQUEST_TIMEOUT_S).close()
    times = {"request_timeout_s": REQUEST_TIMEOUT_S, "timeout_s": REQUEST_TIMEOUT_S}
    return open_admin(login, server, **times, client_id="logyard-spark", hasty=True)


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
