"""The systemd units of docs/examples start brokers that do not get in each other's way."""

import itertools
import re
import shlex
from pathlib import Path

import pytest

from logyard.broker.config.broker import BrokerConfig
from logyard.broker.controller.topics.placement import place

UNITS = Path(__file__).resolve().parents[3] / "docs" / "examples" / "systemd"
SHARED = "zookeeper.connect=127.0.0.1:2181\n"


def unit(name: str) -> dict[str, str]:
    """The keys of a unit's file; none of ours is in two sections."""
    text = re.sub(r"\\\n\s*", "", (UNITS / name).read_text())
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))


def settings(instance: str, host: str) -> dict[str, str]:
    """The --override pairs of an instance's command."""
    command = unit("logyard-broker@.service")["ExecStart"]
    words = shlex.split(command.replace("%i", instance).replace("${HOST}", host))
    assert words[words.index("-m") + 1] == "logyard.broker"
    pairs = [after for word, after in itertools.pairwise(words) if word == "--override"]
    return dict(pair.split("=", 1) for pair in pairs)


@pytest.mark.parametrize("instance", ["11", "12", "21"])
def test_a_broker_accepts_the_command(instance: str) -> None:
    config = BrokerConfig.parse(SHARED, settings(instance, f"host{instance[0]}"), strict=True)
    assert config.int("broker.id") == int(instance)


def test_brokers_of_one_host_share_a_rack_and_nothing_else() -> None:
    one, other = settings("11", "host1"), settings("12", "host1")
    assert {key for key in one if one[key] == other[key]} == {"broker.rack"}


def test_no_host_has_two_replicas() -> None:
    """Racks are hosts: as long as there are as many hosts as replicas, none has two of a partition."""
    for hosts in (3, 4, 5):
        for a_host in (2, 3, 8):
            ids = [(10 * host + n, f"host{host}") for host in range(1, hosts + 1) for n in range(1, a_host + 1)]
            for start in range(len(ids)):
                placed = dict(place(ids, 4 * len(ids), 3, start=start, shift=start % 3))
                assert all(len({broker // 10 for broker in replicas}) == 3 for replicas in placed.values())


def test_the_target_stops_them_together() -> None:
    service = unit("logyard-broker@.service")
    assert service["PartOf"] == service["WantedBy"] == "logyard.target"
    assert unit("logyard.target")["WantedBy"] == "multi-user.target"
