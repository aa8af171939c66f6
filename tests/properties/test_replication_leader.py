"""One leader under random appends, fetches, time and answers of the controller (facts §10, §23)."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from logyard.broker.config.topic import TopicConfig
from logyard.broker.errors import ErrorCode
from logyard.broker.replication.ports import IsrChangeResult
from tests.support.lengths import examples
from tests.support.replica_world import T0, Pending, World, follower_fetch, produce

FOLLOWERS = (2, 3)

Step = tuple[Any, ...]  # what is done, and its figures

steps = st.one_of(
    st.tuples(st.just("produce"), st.sampled_from([-1, 1])),
    st.tuples(st.just("fetch"), st.sampled_from(FOLLOWERS), st.integers(0, 3)),
    st.tuples(st.just("pass"), st.sampled_from([10, 60, 200])),
    st.tuples(st.just("answer"), st.sampled_from(["accept", "withdraw", "retry", "wait"])),
    st.tuples(st.just("alive"), st.sampled_from([(1, 2, 3), (1, 2), (1,)])),
    st.tuples(st.just("elect"), st.sampled_from([(1,), (1, 2), (1, 2, 3)])),
)

REFUSALS = {
    "withdraw": ErrorCode.INELIGIBLE_REPLICA,
    "retry": ErrorCode.UNKNOWN_SERVER_ERROR,
    "wait": ErrorCode.INVALID_UPDATE_VERSION,
}


class History:
    """Drives one world and checks its invariants after every step."""

    def __init__(self, min_isr: int) -> None:
        self.world = World(lag_time_max_ms=100)
        self.world.config = TopicConfig(min_insync_replicas=min_isr)
        self.world.replicas.start()
        self.epoch = 0
        self.world.tell(self.world.order())
        self.waiting: list[tuple[int, Pending]] = []
        self.held = {2: 0, 3: 0}  # how far each follower's log really goes

    def do(self, step: Step) -> None:
        log = self.world.log(T0)
        match step:
            case "produce", acks:
                result = produce(self.world, acks=acks, timeout_ms=300)
                if not isinstance(result, list):
                    self.waiting.append((log.log_end_offset, result))
            case "fetch", follower, behind:
                offset = max(self.held[follower], log.log_end_offset - behind)
                self.held[follower] = offset
                follower_fetch(self.world, follower, offset, log_start_offset=0)
            case "pass", ms:
                self.world.advance(ms)
            case "answer", kind if self.world.submitted:
                change = self.world.submitted.pop(0)
                change.accept() if kind == "accept" else change.callback(IsrChangeResult(REFUSALS[kind]))
            case "alive", brokers:
                self.world.hear(brokers)
            case "elect", isr:
                partition = self.world.partition(T0)
                self.epoch += 1
                order = self.world.order(
                    leader_epoch=self.epoch, isr=isr, partition_epoch=partition.partition_epoch + 1
                )
                self.world.tell(order)

    def check(self, before: int) -> None:
        partition = self.world.partition(T0)
        log, isr = self.world.log(T0), partition.isr
        assert log.high_watermark >= before, "the watermark went back"
        if log.high_watermark > before:
            assert len(isr.committed) >= partition.min_isr, "moved under the minimum"
            for member in isr.maximal - {1}:
                assert partition.remotes[member].log_end_offset >= log.high_watermark, "passed a member"
        assert 1 in isr.committed
        assert isr.pending is not None or isr.maximal == set(isr.committed)
        for required, pending in self.waiting:
            if pending.done() and pending.result()[0].error is ErrorCode.NONE:
                assert log.high_watermark >= required, "acknowledged too early"


@settings(deadline=None, max_examples=examples(150))
@given(st.integers(1, 3), st.lists(steps, max_size=40))
def test_the_high_watermark_keeps_its_invariants(min_isr: int, history: list[Step]) -> None:
    told = History(min_isr)
    for step in history:
        before = told.world.log(T0).high_watermark
        told.do(step)
        told.check(before)
    told.world.replicas.close()
    assert all(pending.done() for _, pending in told.waiting)
