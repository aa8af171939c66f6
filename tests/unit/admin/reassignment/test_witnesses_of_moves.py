"""Execute, verify and cancel where one broker, the one that was asked, is behind, or a broker dies meanwhile."""

from collections.abc import Sequence

import pytest

from logyard.admin.cluster.snapshot import ClusterSnapshot, ReplicaSize
from logyard.admin.reassignment import command
from logyard.admin.reassignment.ending import ReassignmentRefused
from logyard.admin.reassignment.throttles import settings
from logyard.broker.errors import ApiError, ErrorCode
from tests.support.memory_clients import MemoryClient
from tests.unit.admin.reassignment.test_command import MOVE, RATES, T0, Yard, plan


@pytest.fixture
def yard() -> Yard:
    return Yard()


class TestOneBrokerThatIsBehind:
    """It alone was asked, and does not know that a broker is back, or where replicas are now."""

    def test_a_source_that_it_does_not_know_is_throttled_and_its_throttle_ends(self, yard: Yard) -> None:
        yard.cluster.unmet = {2}
        yard.execute(plan((T0, [3, 4])), throttle=1000)
        assert "cannot be asked" not in "".join(yard.said)
        assert yard.cluster.broker_config[2] == dict.fromkeys(RATES, "1000")
        while yard.client.list_reassignments():
            yard.pause.sleep(1)
        assert yard.verify(MOVE)
        assert yard.said[2] == "Clearing broker-level throttles on brokers 1,2,3,4"
        assert not yard.throttled()

    def test_a_target_that_it_does_not_know_is_not_away(self, yard: Yard) -> None:
        yard.execute(MOVE, throttle=1000)
        while yard.client.list_reassignments():
            yard.pause.sleep(1)
        yard.cluster.unmet = {4}
        assert yard.verify(MOVE)
        assert not yard.throttled()

    def test_it_does_not_say_where_replicas_are(self, yard: Yard) -> None:
        before = yard.client.snapshot(["t"]).topics["t"]
        yard.execute(MOVE)
        while yard.client.list_reassignments():
            yard.pause.sleep(1)
        yard.cluster.outdated = {"t": before}
        assert yard.verify(MOVE)
        assert yard.said[0].endswith("\nReassignment of partition t-0 is completed.")

    def test_a_cancellation_is_not_refused_because_of_it(self, yard: Yard) -> None:
        yard.execute(MOVE, throttle=1000)
        yard.cluster.unmet = {1, 2}
        yard.cancel(MOVE)
        assert not yard.client.list_reassignments()
        assert not yard.throttled()

    def test_moves_of_directories_on_a_broker_that_it_does_not_know(
        self, yard: Yard, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[int] = []

        def sizes(brokers: Sequence[int] | None = None) -> list[ReplicaSize]:
            asked.extend(brokers or ())
            copy = ReplicaSize(2, "/b", T0, 5, is_future=True)
            return [ReplicaSize(2, "/a", T0, 9), copy] if 2 in asked else []

        monkeypatch.setattr(yard.client, "replica_sizes", sizes)
        yard.cluster.unmet = {2}
        text = plan((T0, [1, 2]), log_dirs=["any", "/b"])
        assert not yard.verify(text)
        assert yard.said[1] == "Reassignment of replica t-0-2 is still in progress."
        yard.cancel(text)
        assert yard.said[1] == "Successfully started moving log directory to /a for replica t-0 with broker 2 "

    def test_where_nobody_can_tell_no_throttle_is_removed(self, yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
        yard.execute(plan((T0, [1, 2])), throttle=5)

        def unsure(topics: Sequence[str] | None = None) -> ClusterSnapshot:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "broker 2 knows another controller than broker 1")

        monkeypatch.setattr(yard.client, "witnessed", unsure)
        for command_of in (yard.verify, yard.cancel):
            with pytest.raises(ApiError, match="another controller"):
                command_of(plan((T0, [1, 2])))
        assert yard.throttled()


def test_a_broker_that_dies_meanwhile_keeps_no_other_throttle(yard: Yard) -> None:
    yard.execute(plan((T0, [1, 2])), throttle=1000)
    yard.cluster.controller = 3
    yard.cluster.hung = {1}
    with pytest.raises(ReassignmentRefused, match="broker 1 cannot be asked: its throttles stay"):
        yard.verify(plan((T0, [1, 2])))
    assert yard.cluster.broker_config == {1: dict.fromkeys(RATES, "1000"), 2: {}, 3: {}, 4: {}}
    assert not set(settings.TOPIC_THROTTLES) & set(yard.cluster.configs["t"])


def test_a_wait_asks_each_broker_for_its_directories_once_a_poll(yard: Yard, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not answer ends no wait: what moves in it is not known."""
    text, path = plan((T0, [1, 2]), log_dirs=["any", "/b"]), "/b"
    asked: list[int] = []
    polls = {"active": 3, "silent": 2}

    def replica_sizes(client: MemoryClient, brokers: Sequence[int] | None = None) -> list[ReplicaSize]:
        assert brokers is not None
        asked.extend(brokers)
        if list(brokers) != [2]:
            return []
        if polls["active"]:
            polls["active"] -= 1
            return [ReplicaSize(2, "/a", T0, 10), ReplicaSize(2, path, T0, 5, is_future=True)]
        if polls["silent"]:
            polls["silent"] -= 1
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, "broker 2 does not answer")
        return [ReplicaSize(2, path, T0, 10)]

    monkeypatch.setattr(MemoryClient, "replica_sizes", replica_sizes)
    told: list[str] = []
    command.await_end(yard.client, text, pause=yard.pause, tell=told.append)
    assert polls == {"active": 0, "silent": 0}
    assert asked == [1, 2, 3, 4] * 6
