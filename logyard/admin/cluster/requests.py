"""Requests that have no method in `ports.ClusterClient`; each is needed by one command."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from logyard.admin.acls import requests as acl_requests
from logyard.admin.acls.acls import Acl, AclFilter
from logyard.admin.cluster import fetching, translation
from logyard.admin.cluster.asking import DESCRIBE_QUORUM
from logyard.admin.cluster.client import KafkaClusterClient
from logyard.admin.cluster.features import Feature, Features, Kind
from logyard.admin.cluster.fetching import Fetched
from logyard.admin.cluster.snapshot import ConfigValue
from logyard.admin.configs import requests as config_requests
from logyard.admin.configs.entities import BROKERS, DEFAULT, Entity
from logyard.admin.groups import requests
from logyard.admin.groups.groups import Group
from logyard.admin.ports import Quorum
from logyard.admin.quotas.quotas import Quota
from logyard.admin.transactions import requests as transaction_requests
from logyard.admin.transactions.transactions import AbortMarker, Producer, Transaction, TransactionListing
from logyard.admin.users import requests as user_requests
from logyard.admin.users.users import NewPassword
from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.model import TopicPartition

_ELSEWHERE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
_GROUP, _TRANSACTION = 0, 1  # what FindCoordinator is asked for
_METADATA_TOPIC = "__cluster_metadata"

Codes = Callable[[Any], Sequence[int]]
"""The error codes in a response."""


class ClusterRequests(KafkaClusterClient):
    """A client that sends any request of kafka-python's to any broker or to a group's coordinator."""

    def ask(self, make: Callable[[], Any], node: int | None = None, codes: Codes | None = None) -> Any:
        """Send a request to a broker (None: any) and return its response.

        `codes` reads the response's errors: those that mean that the coordinator is not available yet are retried.
        """

        def once() -> Any:
            response = self._connection.send(make(), node)
            _try_again(codes(response) if codes is not None else ())
            return response

        return self._repeat(once)

    def ask_controller(self, make: Callable[[], Any], codes: Codes) -> Any:
        """Send a request to the controller, looking it up again if it has moved. `codes` reads the errors."""
        return self._to_controller(make, codes)

    def coordinator(self, group: str) -> tuple[int, str]:
        """The broker that coordinates a group, and its host:port."""
        return self._coordinator(group, _GROUP)

    def _coordinator(self, key: str, kind: int) -> tuple[int, str]:
        from kafka.protocol.metadata import FindCoordinatorRequest

        def make() -> Any:
            return FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])

        def found(answer: Any) -> Any:
            several = getattr(answer, "coordinators", None)
            return several[0] if several else answer

        answer = found(self.ask(make, codes=lambda answer: [found(answer).error_code]))
        return int(answer.node_id), f"{answer.host}:{answer.port}"

    def ask_coordinator(self, group: str, make: Callable[[], Any], codes: Codes) -> Any:
        """Send a request to a group's coordinator, looking it up again if it has moved."""
        return self._ask_coordinator((group, _GROUP), make, codes)[1]

    def ask_transaction_coordinator(
        self, transactional_id: str, make: Callable[[], Any], codes: Codes
    ) -> tuple[int, Any]:
        """The same for a transactional id; returns the coordinator's id too."""
        return self._ask_coordinator((transactional_id, _TRANSACTION), make, codes)

    def _ask_coordinator(self, key: tuple[str, int], make: Callable[[], Any], codes: Codes) -> tuple[int, Any]:
        def once() -> tuple[int, Any]:
            node, _ = self._coordinator(*key)
            response = self._connection.send(make(), node)
            _try_again(codes(response))
            return node, response

        found: tuple[int, Any] = self._repeat(once)
        return found

    def live_brokers(self) -> list[int]:
        return sorted(self.snapshot([]).brokers)

    def describe_group(self, group_id: str) -> Group:
        return requests.describe(self, group_id)

    def delete_group(self, group_id: str) -> None:
        problem = requests.delete(self, group_id)
        if problem is not None:
            raise ApiError(problem.code, f"group {group_id}: {problem}")

    def fetch(self, tp: TopicPartition, leader: int, offset: int, size_max: int) -> Fetched:
        return fetching.fetch(self, tp, leader, offset, size_max)

    def list_transactions(
        self, producer_ids: Iterable[int] = (), duration_ms: int | None = None
    ) -> list[TransactionListing]:
        return transaction_requests.list_transactions(self, producer_ids, duration_ms)

    def describe_transaction(self, transactional_id: str) -> Transaction | None:
        return transaction_requests.describe_transaction(self, transactional_id)

    def describe_producers(
        self, partitions: Sequence[TopicPartition], broker: int | None = None
    ) -> dict[TopicPartition, tuple[Producer, ...] | ApiError]:
        return transaction_requests.describe_producers(self, partitions, broker)

    def write_abort_marker(self, marker: AbortMarker) -> None:
        transaction_requests.write_abort_marker(self, marker)

    def acls(self, chosen: AclFilter) -> list[Acl]:
        return acl_requests.describe(self, chosen)

    def create_acls(self, wanted: Sequence[Acl]) -> None:
        acl_requests.create(self, wanted)

    def delete_acls(self, chosen: Sequence[AclFilter]) -> list[Acl]:
        return acl_requests.delete(self, chosen)

    def alter_users(
        self, upsert: Sequence[NewPassword], delete: Mapping[str, Sequence[str]]
    ) -> dict[str, ApiError | None]:
        return user_requests.alter(self, upsert, delete)

    def quotas(self, entity: Entity) -> list[Quota]:
        return [
            Quota(Entity(entity.types, tuple(names[kind] or DEFAULT for kind in entity.types)), values)
            for names, values in config_requests.quotas(self, entity)
        ]

    def alter_quotas(self, entity: Entity, values: Mapping[str, float], remove: Sequence[str] = ()) -> None:
        config_requests.alter_quotas(self, entity, {key: str(value) for key, value in values.items()}, remove)

    def broker_defaults(self) -> dict[str, ConfigValue]:
        found = config_requests.describe(self, Entity((BROKERS,), (DEFAULT,)))
        return {one.name: ConfigValue(one.value, one.source, sensitive=one.sensitive) for one in found}

    def quorum(self) -> Quorum | None:
        # Metadata of a KRaft cluster names any broker as controller.
        if not self._connection.offers(DESCRIBE_QUORUM):
            return None
        from kafka.protocol.admin import DescribeQuorumRequest

        topic = DescribeQuorumRequest.TopicData
        wanted = [topic(topic_name=_METADATA_TOPIC, partitions=[topic.PartitionData(partition_index=0)])]
        answer = self.ask(lambda: DescribeQuorumRequest(topics=wanted))
        translation.refuse(answer.error_code, None)
        (partition,) = answer.topics[0].partitions
        translation.refuse(partition.error_code, None)
        return Quorum(partition.leader_id, partition.leader_epoch)

    def features(self) -> Features:
        """The features that a broker supports, and those that are finalized, as it knows them."""
        from kafka.protocol.metadata import ApiVersionsRequest

        answer = self.ask(
            lambda: ApiVersionsRequest(client_software_name="logyard", client_software_version="1", min_version=3)
        )
        translation.refuse(answer.error_code, None)
        finalized = {one.name: one.max_version_level for one in answer.finalized_features or ()}
        supported = tuple(
            Feature(one.name, one.min_version, one.max_version, finalized.get(one.name, 0))
            for one in answer.supported_features or ()
        )
        epoch = answer.finalized_features_epoch
        return Features(supported, None if epoch is None or epoch < 0 else epoch)

    def update_features(
        self, levels: Mapping[str, int], kind: Kind, *, validate_only: bool = False
    ) -> dict[str, ApiError | None]:
        """Finalize levels; returns by name why not, None where it is done. Raises ApiError, ClusterUnreachable."""
        from kafka.protocol.admin import UpdateFeaturesRequest

        wanted = UpdateFeaturesRequest.FeatureUpdateKey
        updates = [
            wanted(feature=name, max_version_level=level, upgrade_type=kind.value) for name, level in levels.items()
        ]
        # Version 1 has a kind and a dry run; version 2 has no answer for each feature.
        answer = self._to_controller(
            lambda: UpdateFeaturesRequest(
                timeout_ms=self._timeout_ms,
                feature_updates=updates,
                validate_only=validate_only,
                min_version=1,
                max_version=1,
            ),
            lambda answer: [answer.error_code],
        )
        translation.refuse(answer.error_code, answer.error_message)
        return {one.feature: translation.problem(one.error_code, one.error_message) for one in answer.results}

    def scram_users(self, users: Sequence[str] | None = None) -> dict[str, dict[str, int]]:
        return user_requests.describe(self, users or ())

    def alter_scram(self, user: str, upsert: Mapping[str, tuple[int, str]], delete: Sequence[str]) -> str | None:
        """Set credentials (mechanism → iterations, password) and remove others; returns the error, or None."""
        from kafka.admin import UserScramCredentialDeletion, UserScramCredentialUpsertion

        changes = [UserScramCredentialUpsertion(user, m, p, iterations=i) for m, (i, p) in upsert.items()]
        changes += [UserScramCredentialDeletion(user, mechanism) for mechanism in delete]
        problems: dict[str, str | None] = self._repeat(lambda: self._admin.alter_user_scram_credentials(changes))
        return problems.get(user)


def _try_again(codes: Sequence[int]) -> None:
    from kafka import errors as theirs

    for code in codes:
        if code in _ELSEWHERE:
            raise theirs.for_code(code)()
