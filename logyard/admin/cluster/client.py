"""A cluster's admin API by kafka-python (pinned); `asking.py` sends its requests, `connection.py` opens its client.

Of many results kafka-python 3.0.12 raises the first error; here every result is read. Its modules take 0.2 s to import,
so they are imported inside functions.
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from logyard.admin.cluster import translation
from logyard.admin.cluster.asking import Asking
from logyard.admin.cluster.probe import probe_brokers
from logyard.admin.cluster.snapshot import (
    ClusterSnapshot,
    ConfigValue,
    GroupView,
    LogDirs,
    NewTopic,
    ReplicaSize,
)
from logyard.admin.cluster.told_offsets import ToldOffsets, ask_leaders
from logyard.admin.ports import LATEST, ClusterUnreachable
from logyard.admin.recovery.witnesses import Probe
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import Assignment, TopicPartition, topic_id_from_text
from logyard.login.meanings import meaning

_TOPICS_PER_REQUEST = 200
# Kafka's numbers of what has settings.
_TOPIC, _BROKER = 2, 4


class KafkaClusterClient(Asking):
    """`ports.ClusterClient` over the Kafka protocol; connects at the first request. Not for several threads at once."""

    reaches_dead_brokers = False

    # -- reading ---------------------------------------------------------------------------------

    def snapshot(self, topics: Sequence[str] | None = None, *, reassignments: bool = False) -> ClusterSnapshot:
        metadata = self._repeat(lambda: self._metadata(topics).to_dict())
        if unknown := translation.unknown(metadata):
            try:
                told = self._witnesses(unknown, self._settings.request_timeout_s)
            except (ClusterUnreachable, ApiError):
                told = None  # they are in neither of `topics` and `missing`
            metadata = translation.settled(metadata, told)
        moving: dict[TopicPartition, Assignment] | None = None
        if reassignments:
            try:
                moving = self.list_reassignments(self._settings.request_timeout_s)
            except (ClusterUnreachable, ApiError):
                moving = None  # there is no controller now: the rest of the snapshot is still useful
        return _snapshot(metadata, moving)

    def witnessed(self, topics: Sequence[str] | None = None) -> ClusterSnapshot:
        return _snapshot(self._witnesses(topics), None)

    def list_reassignments(self, timeout_s: float | None = None) -> dict[TopicPartition, Assignment]:
        from kafka.protocol.admin import ListPartitionReassignmentsRequest

        response = self._to_controller(
            lambda: ListPartitionReassignmentsRequest(timeout_ms=self._timeout_ms, topics=None),
            lambda answer: [answer.error_code],
            timeout_s,
        )
        translation.refuse(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, p.partition_index): Assignment(
                tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
            )
            for topic in response.topics
            for p in topic.partitions
        }

    def topic_configs(self, topic: str) -> dict[str, ConfigValue]:
        try:
            return self._configs(_TOPIC, topic)
        except ApiError as problem:
            if problem.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic in self.witnessed([topic]).topics:
                raise ClusterUnreachable(f"topic {topic}: the broker that was asked does not know it yet") from None
            raise

    def topics_configs(self, topics: Sequence[str]) -> dict[str, dict[str, ConfigValue]]:
        found: dict[str, dict[str, ConfigValue]] = {}
        for first in range(0, len(topics), _TOPICS_PER_REQUEST):
            part = topics[first : first + _TOPICS_PER_REQUEST]
            for result in self._repeat(partial(self._describe_configs, _TOPIC, part, defaults=False)):
                if result.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    found[result.resource_name] = translation.configs(result.configs)
        return found

    def broker_configs(self, broker: int) -> dict[str, ConfigValue]:
        return self._configs(_BROKER, str(broker))

    def replica_sizes(self, brokers: Sequence[int] | None = None) -> list[ReplicaSize]:
        return list(self.log_dirs(brokers).replicas)

    def log_dirs(self, brokers: Sequence[int] | None = None) -> LogDirs:
        ids = list(brokers) if brokers is not None else sorted(self.snapshot([]).brokers)
        # Without partitions kafka-python's method first asks Metadata for every topic; the protocol takes null for all.
        from kafka.protocol.admin import DescribeLogDirsRequest

        def ask(broker: int) -> dict[str, Any]:
            response = self._connection.send(DescribeLogDirsRequest(topics=None), broker)
            translation.refuse_silence(response)
            return {"broker": broker, "log_dirs": [result.to_dict() for result in response.results]}

        answers = self._repeat(lambda: [ask(broker) for broker in ids])
        return LogDirs(tuple(translation.replica_sizes(answers)), tuple(translation.directories(answers)))

    def offsets(self, partitions: Sequence[TopicPartition], timestamp: int = LATEST) -> dict[TopicPartition, int]:
        from kafka.structs import TopicPartition as Theirs

        wanted = {Theirs(*tp): timestamp for tp in partitions}
        found = self._repeat(lambda: self._admin.list_partition_offsets(wanted)) if wanted else {}
        return {TopicPartition(*tp): entry.offset for tp, entry in found.items()}

    def told_offsets(self, leaders: Mapping[TopicPartition, int], timestamp: int = LATEST) -> ToldOffsets:
        return ask_leaders(self._connection, leaders, timestamp, self._timeout_ms, self._silent)

    def groups(self) -> list[GroupView]:
        listed = self._repeat(self._admin.list_groups)
        ids = sorted({entry["group_id"] for entry in listed})
        described = self._repeat(lambda: self._admin.describe_groups(ids)) if ids else {}
        return translation.groups(described)

    def group_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        found = self._repeat(lambda: self._admin.list_group_offsets({group_id: None}))
        return {TopicPartition(*tp): o.offset for tp, o in found[group_id].items() if o.offset >= 0}

    # -- changing --------------------------------------------------------------------------------

    def create_topic(self, topic: NewTopic, *, validate_only: bool = False) -> None:
        """Create a topic.

        If an answer was lost and the request repeated, it may raise TOPIC_ALREADY_EXISTS although this call created
        the topic: callers compare what exists with what was wanted.
        """
        from kafka.protocol.admin import CreateTopicsRequest

        wanted = CreateTopicsRequest.CreatableTopic
        assigned = [
            wanted.CreatableReplicaAssignment(partition_index=p, broker_ids=list(replicas))
            for p, replicas in (topic.assignment or {}).items()
        ]
        configs = [wanted.CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()]
        response = self._to_controller(
            lambda: CreateTopicsRequest(
                topics=[
                    wanted(
                        name=topic.name,
                        num_partitions=-1 if topic.assignment else topic.partitions,
                        replication_factor=-1 if topic.assignment else topic.replication_factor,
                        assignments=assigned,
                        configs=configs,
                    )
                ],
                timeout_ms=self._timeout_ms,
                validate_only=validate_only,
            ),
            lambda answer: [entry.error_code for entry in answer.topics],
        )
        for entry in response.topics:
            translation.refuse(entry.error_code, entry.error_message, unless=ErrorCode.REQUEST_TIMED_OUT)

    def delete_topic(self, topic: str, topic_id: str | None = None) -> None:
        from kafka.protocol.admin import DeleteTopicsRequest

        wanted = DeleteTopicsRequest.DeleteTopicState
        which = wanted(name=topic) if topic_id is None else wanted(topic_id=topic_id_from_text(topic_id))
        response = self._to_controller(
            # Versions below 6 have `topic_names` alone.
            lambda: DeleteTopicsRequest(topics=[which], topic_names=[topic], timeout_ms=self._timeout_ms),
            lambda answer: [entry.error_code for entry in answer.responses],
        )
        for entry in response.responses:
            translation.refuse(
                entry.error_code, getattr(entry, "error_message", None), unless=ErrorCode.REQUEST_TIMED_OUT
            )

    def add_partitions(
        self, topic: str, total: int, assignments: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> None:
        from kafka.protocol.admin import CreatePartitionsRequest

        wanted = CreatePartitionsRequest.CreatePartitionsTopic
        placed = [wanted.CreatePartitionsAssignment(broker_ids=list(a)) for a in assignments] if assignments else None
        response = self._to_controller(
            lambda: CreatePartitionsRequest(
                topics=[wanted(name=topic, count=total, assignments=placed)],
                timeout_ms=self._timeout_ms,
                validate_only=validate_only,
            ),
            lambda answer: [entry.error_code for entry in answer.results],
        )
        for entry in response.results:
            translation.refuse(entry.error_code, entry.error_message, unless=ErrorCode.REQUEST_TIMED_OUT)

    def alter_topic_configs(
        self, topic: str, values: Mapping[str, str], delete: Sequence[str] = (), *, validate_only: bool = False
    ) -> None:
        self._alter_configs(_TOPIC, topic, values, delete, validate_only)

    def alter_broker_configs(
        self, broker: int | None, values: Mapping[str, str], delete: Sequence[str] = (), *, validate_only: bool = False
    ) -> None:
        self._alter_configs(_BROKER, "" if broker is None else str(broker), values, delete, validate_only)

    def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, ApiError | None]:
        from kafka.protocol.admin import AlterPartitionReassignmentsRequest

        if not targets:
            return {}
        wanted = AlterPartitionReassignmentsRequest.ReassignableTopic
        topics: dict[str, list[Any]] = {}
        for tp, replicas in targets.items():
            listed = None if replicas is None else list(replicas)
            topics.setdefault(tp.topic, []).append(
                wanted.ReassignablePartition(partition_index=tp.partition, replicas=listed)
            )
        response = self._to_controller(
            lambda: AlterPartitionReassignmentsRequest(
                timeout_ms=self._timeout_ms,
                topics=[wanted(name=name, partitions=partitions) for name, partitions in topics.items()],
            ),
            lambda answer: [answer.error_code],
        )
        translation.refuse(response.error_code, response.error_message)
        return {
            TopicPartition(topic.name, p.partition_index): translation.problem(p.error_code, p.error_message)
            for topic in response.responses
            for p in topic.partitions
        }

    def elect_leaders(
        self, partitions: Sequence[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, ApiError | None]:
        from kafka.protocol.admin import ElectionType, ElectLeadersRequest

        wanted: dict[str, list[int]] = {}
        for tp in partitions or ():
            wanted.setdefault(tp.topic, []).append(tp.partition)
        response = self._to_controller(
            lambda: ElectLeadersRequest(
                election_type=ElectionType(1 if unclean else 0),
                topic_partitions=None if partitions is None else list(wanted.items()),
                timeout_ms=self._timeout_ms,
            ),
            lambda answer: [getattr(answer, "error_code", 0)],
        )
        translation.refuse(getattr(response, "error_code", 0), None)
        return {
            TopicPartition(topic.topic, p.partition_id): translation.problem(p.error_code, p.error_message)
            for topic in response.replica_election_results
            for p in topic.partition_result
        }

    def alter_replica_log_dirs(
        self, moves: Mapping[tuple[str, int, int], str]
    ) -> dict[tuple[str, int, int], ApiError | None]:
        results = self._repeat(lambda: self._admin.alter_replica_log_dirs(dict(moves))) if moves else {}
        return {
            (found.topic, found.partition, found.broker_id): translation.problem(error.errno, error.__name__)
            for found, error in results.items()
        }

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        from kafka.structs import TopicPartition as Theirs

        wanted = {Theirs(*tp): offset for tp, offset in before.items()}
        found = self._repeat(lambda: self._admin.delete_records(wanted)) if wanted else {}
        return {TopicPartition(*tp): entry["low_watermark"] for tp, entry in found.items()}

    def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        from kafka.structs import OffsetAndMetadata
        from kafka.structs import TopicPartition as Theirs

        wanted = {Theirs(*tp): OffsetAndMetadata(offset, "", None) for tp, offset in offsets.items()}

        def once() -> Any:
            answers = self._admin.alter_group_offsets(group_id, wanted)
            # Errors come by partition: a coordinator that moves or has just started is worth another attempt.
            passing = next((error for error in answers.values() if getattr(error, "retriable", False)), None)
            if passing is not None:
                raise passing()
            return answers

        results = self._repeat(once)
        for tp, error in results.items():
            translation.refuse(
                error.errno, f"group {group_id}, partition {TopicPartition(*tp)}: {meaning(error.errno)}"
            )

    # -- the controller's health -------------------------------------------------------------------

    def probe(self, addresses: Mapping[int, tuple[str, int]], timeout_s: float) -> dict[int, Probe]:
        return probe_brokers(self._settings, addresses, timeout_s)

    def _configs(self, kind: int, name: str) -> dict[str, ConfigValue]:
        from kafka import errors as theirs

        def ask() -> Any:
            (result,) = self._describe_configs(kind, [name])
            if result.error_code:
                # kafka-python's own call passes over it: a missing right would look like a topic that is not there.
                raise theirs.for_code(result.error_code)(*filter(None, [result.error_message]))
            return result.configs

        return translation.configs(self._repeat(ask))

    def _describe_configs(self, kind: int, names: Sequence[str], *, defaults: bool = True) -> Any:
        """What a broker answers of each; only a broker itself knows its own settings."""
        from kafka.protocol.admin import DescribeConfigsRequest

        resources = [(kind, name, None) for name in names]
        request = DescribeConfigsRequest(resources=resources, include_synonyms=defaults, min_version=1)
        return self._connection.send(request, int(names[0]) if kind == _BROKER else None).results

    def _alter_configs(
        self, kind: int, name: str, values: Mapping[str, str], delete: Sequence[str], validate_only: bool
    ) -> None:
        from kafka.protocol.admin import IncrementalAlterConfigsRequest

        changes = [(key, 0, value) for key, value in values.items()] + [(key, 1, None) for key in delete]
        if not changes:
            return
        # Only a broker itself takes its own settings; those of all brokers, which have no name, any of them.
        node = int(name) if kind == _BROKER and name else None

        def once() -> Any:
            request = IncrementalAlterConfigsRequest(resources=[(kind, name, changes)], validate_only=validate_only)
            return self._connection.send(request, node)

        for entry in self._repeat(once).responses:
            translation.refuse(entry.error_code, entry.error_message)


def _snapshot(metadata: Mapping[str, Any], moving: Mapping[TopicPartition, Assignment] | None) -> ClusterSnapshot:
    return translation.snapshot(metadata, moving, time.time_ns() // 1_000_000)
