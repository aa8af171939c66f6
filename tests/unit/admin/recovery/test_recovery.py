"""Controllers recovered: dead, hung, missing, wedged, noticed or not; and nothing done where nothing is wrong."""

import json

import pytest

from logyard.admin.cluster.snapshot import NewTopic
from logyard.admin.ports import PartitionsView
from logyard.admin.recovery.case import Case, Expectation, Limits, Recovery
from logyard.admin.recovery.diagnosis import Evidence, Finding, diagnose, health
from logyard.admin.recovery.recovery import NotRecovered, Recoverer
from logyard.admin.recovery.witnesses import ControllerView, Probe, Queue, Wire
from logyard.admin.settings import ClusterSettings
from logyard.broker.errors import CorruptData
from logyard.broker.model import Assignment, BrokerInfo, PartitionState, TopicPartition
from tests.support.memory_clients import MemoryClient, MemoryConnector
from tests.support.memory_cluster import MemoryCluster
from tests.support.memory_ensemble import MemoryEnsemble

SETTINGS = ClusterSettings.read("memory:1")
ALL = dict.fromkeys((1, 2, 3), ("127.0.0.1", 9092))


def cluster() -> MemoryCluster:
    made = MemoryCluster({1: None, 2: None, 3: None})
    client = MemoryClient(made)
    client.create_topic(NewTopic("t", 6, 3))
    client.snapshot()
    return made


def recover(
    made: MemoryCluster, *, launch: bool = True, total_s: float = 120.0, expectation: Expectation | None = None
) -> tuple[Recovery, list[str]]:
    connector, said = MemoryConnector(made), list[str]()
    recoverer = Recoverer(
        ensemble=connector.ensemble(SETTINGS),
        client=connector.cluster(SETTINGS),
        launcher=connector.launcher(["start"], ["stop"], ["status"]) if launch else None,
        pause=connector.pause(),
        say=said.append,
        limits=Limits(total_s=total_s, grace_s=20.0),
        expectation=expectation or Expectation(brokers=ALL),
    )
    return recoverer.run(), said


def test_a_healthy_cluster_is_left_alone() -> None:
    made = cluster()
    result, said = recover(made)
    assert result.finding is Finding.HEALTHY
    assert (result.controller_after, result.epoch_after) == (result.controller_before, result.epoch_before)
    assert result.actions == ()
    assert said == []


def test_a_dead_controller_nobody_has_noticed_yet() -> None:
    made = cluster()
    made.ticks_to_expire = 4
    dead = made.controller
    assert dead is not None
    made.kill(dead)
    result, _ = recover(made)
    assert result.finding is Finding.CONTROLLER_DEAD
    assert result.controller_before == dead != result.controller_after
    assert result.epoch_before is not None
    assert result.epoch_after == result.epoch_before + 1
    assert result.restarted == (dead,)
    assert result.health.is_full
    assert result.health.led == 6


def test_after_another_was_elected_the_dead_broker_still_comes_back() -> None:
    made = cluster()
    dead, epoch = made.controller, made.epoch
    assert dead is not None
    made.kill(dead)
    for _ in range(5):
        made.tick()
    assert made.controller not in (None, dead)
    result, _ = recover(made, expectation=Expectation(controller=dead, epoch=epoch, brokers=ALL))
    assert result.finding is Finding.HEALTHY
    assert (result.controller_before, result.epoch_before) == (dead, epoch)
    assert result.epoch_after > epoch
    assert made.started == [dead]
    assert result.health.is_full


def test_without_a_cluster_file_whoever_holds_replicas_is_expected() -> None:
    made = cluster()
    made.kill(3)
    for _ in range(5):
        made.tick()
    result, _ = recover(made, expectation=Expectation())
    assert result.restarted == (3,)


def test_a_hung_controller_is_fenced() -> None:
    made = cluster()
    hung = made.controller
    assert hung is not None
    made.hung.add(hung)
    result, said = recover(made)
    assert result.finding is Finding.CONTROLLER_HUNG
    assert result.controller_after != hung
    # Its session did not end by itself: after a while what was left of it was ended, and it was started again.
    assert (made.stopped, made.started) == ([hung], [hung])
    assert any("fenced" in line for line in said)


def test_a_successors_work_says_nothing_of_who_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe took so long that the session ended, and another was elected, before ZooKeeper was asked."""
    made = cluster()
    made.ticks_to_expire = 0
    hung = made.controller
    assert hung is not None
    made.hung.add(hung)
    honest = MemoryEnsemble.exercise

    def late(self: MemoryEnsemble, timeout_s: float) -> bool | None:
        if made.controller == hung:
            made.sessions[hung] = 0
            made.tick()
            made.tick()
        assert made.controller not in (None, hung)
        return honest(self, timeout_s)

    monkeypatch.setattr(MemoryEnsemble, "exercise", late)
    result, said = recover(made)
    assert result.finding is Finding.CONTROLLER_HUNG
    assert not [line for line in said if "the fault may be on this side" in line]
    assert result.restarted == (hung,)


def test_brokers_of_another_cluster_than_zookeepers_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection names the brokers of one cluster and the ZooKeeper of another, where the controller is hung."""
    made = cluster()
    assert made.controller is not None
    made.hung.add(made.controller)
    monkeypatch.setattr(MemoryClient, "probe_broker", lambda _, b: Probe(b, Wire.ANSWERS, Queue.REFUSES, b, "another"))
    with pytest.raises(NotRecovered, match=r"it belongs to cluster another, ZooKeeper to memory.*done: nothing"):
        recover(made, total_s=90.0)
    assert (made.started, made.stopped, made.steps) == ([], [], [])


def test_what_is_left_of_a_hung_broker_is_stopped_before_it_is_started_again() -> None:
    """Its session ended, since nobody pings for a stopped process, but its port is still taken."""
    made = cluster()
    made.ticks_to_expire = 0
    hung = made.controller
    assert hung is not None
    made.hung.add(hung)
    made.sessions[hung] = 3
    result, _ = recover(made)
    assert (made.stopped, made.started) == ([hung], [hung])
    assert result.finding is Finding.CONTROLLER_HUNG
    assert result.health.is_full


def test_brokers_that_disagree_learn_it_from_a_new_controller() -> None:
    made = cluster()
    made.beliefs = {2: 3}
    result, said = recover(made)
    assert result.finding is Finding.CONTROLLER_DISPUTED
    assert any("brokers [2] do not accept 1 as controller" in line for line in said)
    assert [action for action in result.actions if "fenced broker 1" in action]
    assert (made.started, made.stopped) == ([], [])


def test_a_broker_that_disagrees_for_ever_is_started_again() -> None:
    made = cluster()
    made.beliefs, made.deaf = {2: 3}, {2}
    result, _ = recover(made)
    assert result.finding is Finding.CONTROLLER_DISPUTED
    assert (made.stopped[0], result.restarted) == (2, (2,))
    assert result.health.is_full


def test_a_disagreement_that_ends_by_itself_is_waited_for() -> None:
    made = cluster()
    made.beliefs = {3: 2}

    class Learning(MemoryCluster):
        def tick(self) -> None:
            super().tick()
            self.beliefs = {}

    made.__class__ = Learning
    result, _ = recover(made)
    assert (result.finding, result.actions) == (Finding.CONTROLLER_DISPUTED, ())


def test_another_process_goes_on_with_the_case() -> None:
    """As when each round is made by another worker: all that is known is the case's JSON and the time gone by."""
    made = cluster()
    hung = made.controller
    assert hung is not None
    made.hung.add(hung)
    connector, document, rounds = MemoryConnector(made), Case().as_json(), 0
    while True:
        recoverer = Recoverer(
            ensemble=connector.ensemble(SETTINGS),
            client=connector.cluster(SETTINGS),
            launcher=connector.launcher(["start"], ["stop"], ["status"]),
            pause=connector.pause(),
            say=lambda line: None,
            limits=Limits(total_s=120.0, grace_s=20.0),
            expectation=Expectation(brokers=ALL),
            case=Case.from_json(json.loads(json.dumps(document))),
        )
        result = recoverer.round()
        rounds += 1
        if result is not None:
            break
        due = recoverer.next_due_s()
        assert 0 < due <= 60.0
        recoverer.case.elapsed_s += 2.0
        document = recoverer.case.as_json()
        made.tick()
    assert rounds > 5
    assert result.finding is Finding.CONTROLLER_HUNG
    assert (made.stopped, made.started) == ([hung], [hung])
    assert result.seconds >= 20.0
    with pytest.raises(CorruptData, match="case"):
        Case.from_json({"finding": "NONSENSE"})


def test_a_diagnosis_changes_nothing() -> None:
    made = cluster()
    dead = made.controller
    assert dead is not None
    made.kill(dead)
    connector, said = MemoryConnector(made), list[str]()
    recoverer = Recoverer(
        ensemble=connector.ensemble(SETTINGS),
        client=connector.cluster(SETTINGS),
        launcher=connector.launcher(["start"]),
        pause=connector.pause(),
        say=said.append,
        limits=Limits(),
        expectation=Expectation(brokers=ALL),
    )
    found = recoverer.diagnosis()
    assert (found.finding, found.actions, made.started) == (Finding.CONTROLLER_DEAD, (), [])
    assert said


def test_an_election_that_never_comes_is_nudged() -> None:
    made = cluster()
    made.controller, made.electing = None, False
    result, _ = recover(made)
    assert result.finding is Finding.NO_CONTROLLER
    assert any("elect again" in action for action in result.actions)


def test_a_garbled_epoch_is_written_above_every_known_one() -> None:
    made = cluster()
    made.controller, made.epoch_garbled = None, True
    known = max(state.controller_epoch for state in made.states.values())
    result, _ = recover(made)
    assert result.finding is Finding.EPOCH_WEDGED
    assert result.epoch_after > known + 1


def test_an_impossible_epoch_is_not_written_above() -> None:
    made = cluster()
    known = max(state.controller_epoch for state in made.states.values())
    tp = next(iter(made.states))
    made.states[tp] = made.states[tp]._replace(controller_epoch=2**31 - 1)
    made.controller, made.epoch_garbled = None, True
    result, _ = recover(made)
    assert known + 1 < result.epoch_after < 2**30


def test_all_brokers_dead_are_all_started() -> None:
    made = cluster()
    for broker in (1, 2, 3):
        made.kill(broker)
    for _ in range(5):
        made.tick()
    result, _ = recover(made)
    assert result.finding is Finding.NO_BROKER
    assert result.restarted == (1, 2, 3)


def test_without_a_launcher_missing_brokers_are_only_reported() -> None:
    made = cluster()
    dead = made.controller
    assert dead is not None
    made.kill(dead)
    result, _ = recover(made, launch=False)
    assert made.started == []
    assert result.missing == (dead,)
    assert len(result.health.under_replicated) == 6


def test_a_cure_that_does_not_come_says_what_was_tried() -> None:
    made = cluster()
    made.electing = False
    made.controller = None
    made.hung = {1, 2, 3}
    with pytest.raises(NotRecovered, match="there is no /controller"):
        recover(made, total_s=60.0)


def test_diagnosis_tells_a_dead_process_from_a_hung_one_and_both_from_what_is_out_of_reach() -> None:
    brokers = {1: BrokerInfo(1, ()), 2: BrokerInfo(2, ())}
    view = ControllerView(1, 5, 3, 3, brokers)

    def found(
        wire: Wire, queue: Queue = Queue.UNASKED, other: Wire = Wire.ANSWERS, done: bool | None = False
    ) -> Finding:
        return diagnose(Evidence(view, {1: Probe(1, wire, queue, 1), 2: Probe(2, other, controller=1)}, (), done))

    assert found(Wire.CLOSED) is Finding.CONTROLLER_DEAD
    assert found(Wire.UNREACHABLE) is Finding.CONTROLLER_DEAD
    assert found(Wire.SILENT) is Finding.CONTROLLER_HUNG
    assert found(Wire.ANSWERS, Queue.SILENT) is Finding.CONTROLLER_HUNG
    assert found(Wire.ANSWERS, Queue.REFUSES) is Finding.CONTROLLER_HUNG
    assert found(Wire.ANSWERS, Queue.ANSWERS) is Finding.HEALTHY
    for wire in (Wire.CLOSED, Wire.UNREACHABLE, Wire.SILENT, Wire.REFUSES):
        # ZooKeeper shows it at work, or nobody else answers either, or it lives: the fault may be on our side.
        assert found(wire, done=True) is Finding.CONTROLLER_OUT_OF_REACH
        assert found(wire, other=wire) in (Finding.OUT_OF_REACH, Finding.NOT_ALLOWED)
    assert found(Wire.REFUSES) is Finding.NOT_ALLOWED
    assert found(Wire.ANSWERS, Queue.FORBIDDEN) is Finding.NOT_ALLOWED
    assert found(Wire.ANSWERS, Queue.FORBIDDEN, done=True) is Finding.HEALTHY
    assert found(Wire.ANSWERS, Queue.SILENT, done=True) is Finding.CONTROLLER_OUT_OF_REACH
    answers = {1: Probe(1, Wire.ANSWERS)}
    assert diagnose(Evidence(ControllerView(3, 5, 3, 3, brokers), answers)) is Finding.CONTROLLER_DEAD
    assert diagnose(Evidence(ControllerView(None, -1, None, 3, brokers), answers)) is Finding.EPOCH_WEDGED
    assert diagnose(Evidence(ControllerView(None, -1, None, -1, brokers), answers)) is Finding.NO_CONTROLLER
    assert diagnose(Evidence(ControllerView(None, -1, 3, 3, {}), answers)) is Finding.NO_BROKER


def test_health_counts_from_states() -> None:
    tps = [TopicPartition("t", n) for n in range(5)]
    placed = {tp: Assignment((1, 2)) for tp in tps}
    states = {
        tps[0]: PartitionState(1, 0, (1, 2), 1),
        tps[1]: PartitionState(2, 0, (2,), 1),
        tps[2]: PartitionState(9, 0, (1, 9), 1),
        tps[3]: PartitionState(-1, 0, (9,), 1),
    }
    found = health(PartitionsView(states, placed, (tps[4],)), {1: 0, 2: 0})
    assert (found.partitions, found.led) == (5, 2)
    assert found.unled == (tps[2],)
    assert found.lost == (tps[3],)
    assert found.half_made == (tps[4],)
    assert set(found.under_replicated) == {tps[1], tps[2], tps[3]}
    assert not found.is_led
    gone = health(PartitionsView(states, placed, (tps[4],), ("t",)), {1: 0, 2: 0})
    assert (gone.stuck_deletions, gone.is_full) == (("t",), False)
    waiting = health(PartitionsView(states, placed, (tps[4],), ("t",)), {1: 0})
    assert (waiting.stuck_deletions, waiting.is_full) == ((), True)  # a broker that is away holds it up


def test_a_move_is_no_damage_unless_its_target_is_dead() -> None:
    tp = TopicPartition("t", 0)
    states = {tp: PartitionState(1, 0, (1, 2), 1)}
    moving = PartitionsView(states, {tp: Assignment((1, 2)).reassign_to((1, 3))})
    assert health(moving, {1: 0, 2: 0, 3: 0}).is_full
    found = health(moving, {1: 0, 2: 0})
    assert (found.moving, found.stuck_moves, found.is_full) == ((tp,), (tp,), False)
