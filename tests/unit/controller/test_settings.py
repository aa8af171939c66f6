"""The broker's configuration as the controller reads it."""

import pytest

from logyard.broker.config.broker import BrokerConfig
from logyard.broker.config.inter_broker_protocol import InterBrokerProtocol
from logyard.broker.controller.settings import LEVEL_2_5, LEVEL_3_9, protocol_level, settings_from
from logyard.broker.errors import ApiError

MINIMAL = "broker.id=4\nzookeeper.connect=127.0.0.1:2181\nlog.dirs=/tmp/x\nlisteners=PLAINTEXT://127.0.0.1:9092\n"


@pytest.mark.parametrize(
    ("text", "versions"),
    [
        ("0.8.2", (0, 0, 0)),
        ("0.9.0", (0, 1, 0)),
        ("0.10.0", (0, 2, 0)),
        ("0.10.2", (0, 3, 0)),
        ("0.11.0", (0, 3, 0)),
        ("1.1", (1, 4, 0)),
        ("2.2", (2, 5, 1)),
        ("2.4-IV0", (3, 5, 1)),
        ("2.4", (4, 6, 2)),
        ("2.5", (4, 6, 2)),
        ("2.6", (4, 6, 3)),
        ("2.8-IV0", (4, 6, 3)),
        ("2.8", (5, 7, 3)),
        ("3.2", (6, 7, 3)),
        ("3.4", (7, 8, 4)),
        ("3.9", (7, 8, 4)),
    ],
)
def test_request_versions(text: str, versions: tuple[int, int, int]) -> None:
    level = protocol_level(InterBrokerProtocol.from_text(text))
    assert (level.leader_and_isr_version, level.update_metadata_version, level.stop_replica_version) == versions


def test_the_two_protocol_levels_of_the_facts() -> None:
    assert protocol_level(InterBrokerProtocol.from_text("3.9")) == LEVEL_3_9
    assert protocol_level(InterBrokerProtocol.from_text("2.5")) == LEVEL_2_5


def test_from_configuration() -> None:
    config = BrokerConfig.parse(
        MINIMAL + "num.partitions=3\nleader.imbalance.check.interval.seconds=7\ninter.broker.protocol.version=2.5\n"
    )
    settings = settings_from(config)
    assert (settings.broker_id, settings.num_partitions, settings.default_replication_factor) == (4, 3, 1)
    assert settings.leader_imbalance_check_interval_s == 7.0
    assert settings.level == LEVEL_2_5
    assert (settings.delete_topic_enable, settings.unclean_leader_election_enable) == (True, False)
    with pytest.raises(ApiError):
        settings.validate_topic_overrides({"colour": "red"})
