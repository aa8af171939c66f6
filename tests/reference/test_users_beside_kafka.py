"""kafka-configs on users, step by step, on a broker of ours and on one of Kafka's: it prints the same, and the znodes
say the same.

Users have SCRAM credentials and quotas in one znode; what is random in a credential is compared by its form only.
"""

import json
import re
from collections.abc import Iterator
from urllib.parse import unquote

import pytest

from tests.reference.steps import Side, Step, both
from tests.support import kafka
from tests.support.real_cluster import eventually

pytestmark = pytest.mark.timeout(900)

USERS = "--bootstrap-server {bootstrap} --entity-type users"
ALTER = f"{USERS} --alter --entity-name"
_SALT = re.compile(r"salt=[A-Za-z0-9+/=]+")  # of 32 or 36 characters, by chance
_RANDOM = re.compile(r"(stored_key|server_key)=([A-Za-z0-9+/=]+)")

STEPS = (
    Step("configs", f"{ALTER} alice --add-config SCRAM-SHA-256=[iterations=8192,password=alice-pw]"),
    Step("configs", f"{USERS} --describe --entity-name alice"),
    # Both mechanisms, and a quota beside them.
    Step("configs", f"{ALTER} alice --add-config SCRAM-SHA-512=[password=alice-pw]"),
    Step("configs", f"{ALTER} alice --add-config producer_byte_rate=1024,request_percentage=50"),
    Step("configs", f"{USERS} --describe --entity-name alice", ordered=False),
    # Another password: other salt, other iterations.
    Step("configs", f"{ALTER} alice --add-config SCRAM-SHA-256=[password=other-pw]"),
    Step("configs", f"{USERS} --describe --entity-name alice", ordered=False),
    # Names that a path has to encode.
    Step("configs", f"{ALTER} CN=bob,O=x/y --add-config SCRAM-SHA-512=[password=bob-pw]"),
    Step("configs", f"{ALTER} un*al~ --add-config SCRAM-SHA-256=[password=unal-pw]"),
    Step("configs", f"{ALTER} un*al~ --add-config consumer_byte_rate=7"),
    Step("configs", f"{USERS} --alter --entity-default --add-config consumer_byte_rate=2048"),
    Step("configs", f"{USERS} --describe", ordered=False),
    # What is refused changes nothing. The tool itself refuses both kinds of setting at once.
    Step("configs", f"{ALTER} carl --add-config SCRAM-SHA-256=[password=carl-pw],consumer_byte_rate=7", refused=True),
    Step("configs", f"{ALTER} carl --add-config SCRAM-SHA-256=[iterations=100,password=carl-pw]", refused=True),
    Step("configs", f"{ALTER} carl --add-config SCRAM-SHA-256=[iterations=20000,password=carl-pw]", refused=True),
    Step("configs", f"{ALTER} carl --add-config SCRAM-SHA-1=[password=carl-pw]", refused=True),
    Step("configs", f"{ALTER} carl --add-config retention.ms=1", refused=True),
    Step("configs", f"{ALTER} carl --delete-config SCRAM-SHA-256", refused=True),
    Step("configs", f"{USERS} --alter --entity-default --add-config SCRAM-SHA-256=[password=pw]", refused=True),
    Step("configs", f"{USERS} --describe --entity-name carl", ordered=False),
    # One mechanism goes, then the quota, then the rest, and the znode with it.
    Step("configs", f"{ALTER} alice --delete-config SCRAM-SHA-512"),
    Step("configs", f"{ALTER} alice --delete-config producer_byte_rate,request_percentage"),
    Step("configs", f"{USERS} --describe --entity-name alice"),
    Step("configs", f"{ALTER} alice --delete-config SCRAM-SHA-256"),
    Step("configs", f"{USERS} --describe", ordered=False),
)


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    kafka.jars_or_skip()
    home = tmp_path_factory.mktemp("users")
    with kafka.running(home / "ours", "O") as ours, kafka.running(home / "kafka", "K") as theirs:
        yield Side("ours", ours, home), Side("kafka", theirs, home)


def znodes(side: Side) -> dict[str, object]:
    """Every user's znode, and the last notifications, without what is random."""
    found: dict[str, object] = {}
    with side.cluster.zookeeper() as zk:
        for name in zk.get_children("/config/users"):
            content = json.loads(zk.get(f"/config/users/{name}")[0])
            found[name] = {"version": content["version"], "config": _without_random(content["config"])}
        changes = sorted(zk.get_children("/config/changes"))
        found["changes"] = [json.loads(zk.get(f"/config/changes/{name}")[0]) for name in changes]
    return found


def _without_random(config: dict[str, str]) -> dict[str, str]:
    return {
        key: _RANDOM.sub(lambda part: f"{part[1]}={len(part[2])} characters", _SALT.sub("salt=…", value))
        for key, value in config.items()
    }


def test_the_same_steps_have_the_same_outcome(sides: tuple[Side, Side]) -> None:
    for step in STEPS:
        if step.arguments == f"{USERS} --describe":
            # Kafka's broker calls users with credentials as their znodes are called (decision 30).
            ours, theirs = (sorted(unquote(side.run(step)).splitlines()) for side in sides)
            assert ours == theirs
        else:
            assert both(sides, [step]) == []
        for side in sides:
            eventually(lambda s=side: znodes(s), "the znodes are read")
        assert znodes(sides[0]) == znodes(sides[1]), step.arguments
