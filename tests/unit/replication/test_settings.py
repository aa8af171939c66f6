"""Replication's settings from the configuration, and those that change while the broker runs."""

from logyard.broker.config.broker import BrokerConfig
from logyard.broker.replication.settings import settings_from
from logyard.broker.replication.throttle import UNLIMITED, ByteRate

BASE = "zookeeper.connect=z:1\nlog.dirs=/x\nbroker.id=1\n"
KAFKA = "org.apache.kafka.common.replica"


def test_throttles_and_their_windows() -> None:
    config = BrokerConfig.parse(
        BASE + "leader.replication.throttled.rate=5\nreplication.quota.window.num=3\n"
        "replication.quota.window.size.seconds=2\n"
    )
    settings = settings_from(config)
    assert (settings.leader_throttled_rate, settings.follower_throttled_rate) == (5, UNLIMITED)
    assert (settings.throttle_windows, settings.throttle_window_ms) == (3, 2000)
    settings.take_over(config.with_dynamic({"follower.replication.throttled.rate": "7"}))
    assert (settings.leader_throttled_rate, settings.follower_throttled_rate) == (5, 7)
    settings.take_over(config.with_dynamic({"leader.replication.throttled.rate": "9"}))
    assert (settings.leader_throttled_rate, settings.follower_throttled_rate) == (9, UNLIMITED)


def test_the_rack_aware_selector_is_the_one_that_sends_consumers_elsewhere() -> None:
    for line, expected in (
        ("", False),
        (f"replica.selector.class={KAFKA}.LeaderSelector", False),
        (f"replica.selector.class={KAFKA}.RackAwareReplicaSelector", True),
    ):
        assert settings_from(BrokerConfig.parse(BASE + line)).rack_aware_reads is expected


def test_windows_of_another_size() -> None:
    rate = ByteRate(2, 500)
    rate.record(1000, 0)
    assert rate.per_second(100) == 2000, "less than a window counts as one"
    assert rate.per_second(1000) == 0, "two windows later it is forgotten"
