"""What this broker serves: per API key the lowest and the highest version, as ApiVersions advertises them.

The ranges are those of Apache Kafka 3.9 in ZooKeeper mode (facts §19), never a library's. A key is listed
once its handler exists: librdkafka and sarama derive features from the set.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

SUPPORTED: Final[Mapping[int, tuple[int, int]]] = MappingProxyType(
    {
        0: (0, 11),  # Produce
        1: (0, 17),  # Fetch
        2: (0, 9),  # ListOffsets
        3: (0, 12),  # Metadata
        4: (0, 7),  # LeaderAndIsr
        5: (0, 4),  # StopReplica
        6: (0, 8),  # UpdateMetadata
        7: (0, 3),  # ControlledShutdown
        8: (0, 9),  # OffsetCommit
        9: (0, 9),  # OffsetFetch
        10: (0, 6),  # FindCoordinator
        11: (0, 9),  # JoinGroup
        12: (0, 4),  # Heartbeat
        13: (0, 5),  # LeaveGroup
        14: (0, 5),  # SyncGroup
        15: (0, 5),  # DescribeGroups
        16: (0, 5),  # ListGroups
        18: (0, 4),  # ApiVersions
        19: (0, 7),  # CreateTopics
        20: (0, 6),  # DeleteTopics
        21: (0, 2),  # DeleteRecords
        22: (0, 5),  # InitProducerId
        23: (0, 4),  # OffsetForLeaderEpoch
        32: (0, 4),  # DescribeConfigs
        33: (0, 2),  # AlterConfigs
        34: (0, 2),  # AlterReplicaLogDirs
        35: (0, 4),  # DescribeLogDirs
        37: (0, 3),  # CreatePartitions
        42: (0, 2),  # DeleteGroups
        43: (0, 2),  # ElectLeaders
        44: (0, 1),  # IncrementalAlterConfigs
        45: (0, 0),  # AlterPartitionReassignments
        46: (0, 0),  # ListPartitionReassignments
        47: (0, 0),  # OffsetDelete
        48: (0, 1),  # DescribeClientQuotas
        49: (0, 1),  # AlterClientQuotas
        56: (0, 3),  # AlterPartition
        57: (0, 1),  # UpdateFeatures
        60: (0, 1),  # DescribeCluster
        61: (0, 0),  # DescribeProducers
        67: (0, 0),  # AllocateProducerIds
    }
)
