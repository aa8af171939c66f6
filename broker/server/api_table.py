"""The table of all APIs that this broker serves; a new API is registered here and nowhere else.

The versions are those of Apache Kafka 3.9 in ZooKeeper mode, not those of a library (facts §19). An API is listed only
when its handler exists: librdkafka and sarama derive features from the APIs that ApiVersions advertises.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from logyard.broker.server.api import Api
from logyard.broker.server.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    controlled_shutdown,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    expire_delegation_token,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    stop_replica,
    sync_group,
    txn_offset_commit,
    update_features,
    update_metadata,
    write_txn_markers,
)
from logyard.broker.server.rights_table import RIGHTS

_ROWS: Final = (
    # key, versions, handler
    Api(0, (0, 12), produce.HANDLER, pipelined=True, small_answer=True),
    Api(1, (0, 17), fetch.HANDLER),
    Api(2, (0, 9), list_offsets.HANDLER),
    Api(3, (0, 12), metadata.HANDLER),
    Api(4, (0, 7), leader_and_isr.HANDLER, small_answer=True, between_brokers=True),
    Api(5, (0, 4), stop_replica.HANDLER, small_answer=True, between_brokers=True),
    Api(6, (0, 8), update_metadata.HANDLER, small_answer=True, between_brokers=True),
    Api(7, (0, 3), controlled_shutdown.HANDLER, small_answer=True, between_brokers=True),
    Api(8, (0, 9), offset_commit.HANDLER, small_answer=True),
    Api(9, (0, 9), offset_fetch.HANDLER),
    Api(10, (0, 6), find_coordinator.HANDLER, small_answer=True),
    Api(11, (0, 9), join_group.HANDLER, small_answer=True),
    Api(12, (0, 4), heartbeat.HANDLER, small_answer=True),
    Api(13, (0, 5), leave_group.HANDLER, small_answer=True),
    Api(14, (0, 5), sync_group.HANDLER, small_answer=True),
    Api(15, (0, 5), describe_groups.HANDLER),
    Api(16, (0, 5), list_groups.HANDLER),
    Api(17, (0, 1), sasl_handshake.HANDLER, small_answer=True),
    Api(18, (0, 4), api_versions.HANDLER, small_answer=True),
    Api(19, (0, 7), create_topics.HANDLER),
    Api(20, (0, 6), delete_topics.HANDLER),
    Api(21, (0, 2), delete_records.HANDLER),
    Api(22, (0, 5), init_producer_id.HANDLER, small_answer=True),
    Api(23, (0, 4), offset_for_leader_epoch.HANDLER),
    Api(24, (0, 5), add_partitions_to_txn.HANDLER, small_answer=True),
    Api(25, (0, 4), add_offsets_to_txn.HANDLER, small_answer=True),
    Api(26, (0, 5), end_txn.HANDLER, small_answer=True),
    Api(27, (0, 2), write_txn_markers.HANDLER, small_answer=True, between_brokers=True),
    Api(28, (0, 5), txn_offset_commit.HANDLER, small_answer=True),
    Api(29, (0, 3), describe_acls.HANDLER),
    Api(30, (0, 3), create_acls.HANDLER),
    Api(31, (0, 3), delete_acls.HANDLER),
    Api(32, (0, 4), describe_configs.HANDLER),
    Api(33, (0, 2), alter_configs.HANDLER),
    Api(34, (0, 2), alter_replica_log_dirs.HANDLER),
    Api(35, (0, 4), describe_log_dirs.HANDLER),
    Api(36, (0, 2), sasl_authenticate.HANDLER, small_answer=True),
    Api(37, (0, 3), create_partitions.HANDLER),
    Api(38, (0, 3), create_delegation_token.HANDLER, small_answer=True),
    Api(39, (0, 2), renew_delegation_token.HANDLER, small_answer=True),
    Api(40, (0, 2), expire_delegation_token.HANDLER, small_answer=True),
    Api(41, (0, 3), describe_delegation_token.HANDLER),
    Api(42, (0, 2), delete_groups.HANDLER),
    Api(43, (0, 2), elect_leaders.HANDLER),
    Api(44, (0, 1), incremental_alter_configs.HANDLER),
    Api(45, (0, 0), alter_partition_reassignments.HANDLER),
    Api(46, (0, 0), list_partition_reassignments.HANDLER),
    Api(47, (0, 0), offset_delete.HANDLER),
    Api(48, (0, 1), describe_client_quotas.HANDLER),
    Api(49, (0, 1), alter_client_quotas.HANDLER),
    Api(50, (0, 0), describe_user_scram_credentials.HANDLER),
    Api(51, (0, 0), alter_user_scram_credentials.HANDLER),
    Api(56, (0, 3), alter_partition.HANDLER, small_answer=True, between_brokers=True),
    Api(57, (0, 1), update_features.HANDLER),
    Api(60, (0, 1), describe_cluster.HANDLER),
    Api(61, (0, 0), describe_producers.HANDLER),
    Api(65, (0, 0), describe_transactions.HANDLER),
    Api(66, (0, 1), list_transactions.HANDLER),
    Api(67, (0, 0), allocate_producer_ids.HANDLER, small_answer=True, between_brokers=True),
)


def by_key(rows: tuple[Api, ...]) -> Mapping[int, Api]:
    """Return the rows by API key. Raises ValueError if two have the same, or one has no row of rights."""
    apis = {api.key: api for api in rows}
    without_rights = [api.name for api in rows if api.key not in RIGHTS]
    if without_rights:
        raise ValueError(f"{', '.join(without_rights)}: no row of rights (rights_table.py)")
    if len(apis) != len(rows):
        raise ValueError("two rows register the same API key")
    return MappingProxyType(apis)


APIS: Final = by_key(_ROWS)
VERSIONS: Final[Mapping[int, tuple[int, int]]] = MappingProxyType({key: api.versions for key, api in APIS.items()})
"""Lowest and highest version by API key, as ApiVersions advertises them."""
