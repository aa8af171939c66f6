"""inter.broker.protocol.version: Kafka's levels in ZooKeeper mode, in order (facts §22)."""

from enum import IntEnum


class InterBrokerProtocol(IntEnum):
    """A level; later levels are larger, so that levels can be compared: `ibp >= IBP_2_7_IV2`."""

    IBP_0_8_0 = 0
    IBP_0_8_1 = 1
    IBP_0_8_2 = 2
    IBP_0_9_0 = 3
    IBP_0_10_0_IV0 = 4
    IBP_0_10_0_IV1 = 5
    IBP_0_10_1_IV0 = 6
    IBP_0_10_1_IV1 = 7
    IBP_0_10_1_IV2 = 8
    IBP_0_10_2_IV0 = 9
    IBP_0_11_0_IV0 = 10
    IBP_0_11_0_IV1 = 11
    IBP_0_11_0_IV2 = 12
    IBP_1_0_IV0 = 13
    IBP_1_1_IV0 = 14
    IBP_2_0_IV0 = 15
    IBP_2_0_IV1 = 16
    IBP_2_1_IV0 = 17
    IBP_2_1_IV1 = 18
    IBP_2_1_IV2 = 19
    IBP_2_2_IV0 = 20
    IBP_2_2_IV1 = 21
    IBP_2_3_IV0 = 22
    IBP_2_3_IV1 = 23
    IBP_2_4_IV0 = 24
    IBP_2_4_IV1 = 25
    IBP_2_5_IV0 = 26
    IBP_2_6_IV0 = 27
    IBP_2_7_IV0 = 28
    IBP_2_7_IV1 = 29
    IBP_2_7_IV2 = 30
    IBP_2_8_IV0 = 31
    IBP_2_8_IV1 = 32
    IBP_3_0_IV0 = 33
    IBP_3_0_IV1 = 34
    IBP_3_1_IV0 = 35
    IBP_3_2_IV0 = 36
    IBP_3_3_IV0 = 37
    IBP_3_3_IV1 = 38
    IBP_3_3_IV2 = 39
    IBP_3_3_IV3 = 40
    IBP_3_4_IV0 = 41
    IBP_3_5_IV0 = 42
    IBP_3_5_IV1 = 43
    IBP_3_5_IV2 = 44
    IBP_3_6_IV0 = 45
    IBP_3_6_IV1 = 46
    IBP_3_6_IV2 = 47
    IBP_3_7_IV0 = 48
    IBP_3_7_IV1 = 49
    IBP_3_7_IV2 = 50
    IBP_3_7_IV3 = 51
    IBP_3_7_IV4 = 52
    IBP_3_8_IV0 = 53
    IBP_3_9_IV0 = 54

    @property
    def text(self) -> str:
        """The name as Kafka writes it: 2.7-IV2."""
        release, iv, minor = self.name.removeprefix("IBP_").partition("_IV")
        return release.replace("_", ".") + (f"-IV{minor}" if iv else "")

    @classmethod
    def from_text(cls, text: str) -> "InterBrokerProtocol":
        """Read `2.7-IV2`, or a release (`2.7`, `2.7.1`: the last level of it). Raises ValueError."""
        by_text = {level.text: level for level in cls}
        if text in by_text:
            return by_text[text]
        parts = text.split(".")
        release = ".".join(parts[: 3 if parts[0] == "0" else 2])
        levels = [level for level in cls if level.text.partition("-")[0] == release]
        if not levels or "-" in text or not all(part.isdecimal() for part in parts):
            raise ValueError(f"{text!r} is no level between {cls.IBP_0_8_0.text} and {LATEST_IBP.text}")
        return levels[-1]


LATEST_IBP = InterBrokerProtocol.IBP_3_9_IV0

# The levels at which something changes in what is sent or written (facts §4, §22).
IBP_0_10_0_IV1 = InterBrokerProtocol.IBP_0_10_0_IV1  # listener names in registrations, version 4
IBP_1_0_IV0 = InterBrokerProtocol.IBP_1_0_IV0  # a failed log directory does not stop the broker
IBP_2_0_IV1 = InterBrokerProtocol.IBP_2_0_IV1  # ACLs with prefixes
IBP_2_4_IV0 = InterBrokerProtocol.IBP_2_4_IV0  # LeaderAndIsr 4, UpdateMetadata 6, StopReplica 2; adding and removing
IBP_2_4_IV1 = InterBrokerProtocol.IBP_2_4_IV1
IBP_2_6_IV0 = InterBrokerProtocol.IBP_2_6_IV0  # StopReplica 3
IBP_2_7_IV0 = InterBrokerProtocol.IBP_2_7_IV0  # registration version 5, /feature
IBP_2_7_IV1 = InterBrokerProtocol.IBP_2_7_IV1  # truncation on fetch
IBP_2_7_IV2 = InterBrokerProtocol.IBP_2_7_IV2  # AlterPartition
IBP_2_8_IV0 = InterBrokerProtocol.IBP_2_8_IV0  # topic ids
IBP_2_8_IV1 = InterBrokerProtocol.IBP_2_8_IV1  # LeaderAndIsr 5, UpdateMetadata 7
IBP_3_0_IV0 = InterBrokerProtocol.IBP_3_0_IV0  # AllocateProducerIds
IBP_3_1_IV0 = InterBrokerProtocol.IBP_3_1_IV0  # topic ids in Fetch
IBP_3_2_IV0 = InterBrokerProtocol.IBP_3_2_IV0  # LeaderAndIsr 6, leader recovery state
IBP_3_4_IV0 = InterBrokerProtocol.IBP_3_4_IV0  # LeaderAndIsr 7, UpdateMetadata 8, StopReplica 4
IBP_3_9_IV0 = InterBrokerProtocol.IBP_3_9_IV0
