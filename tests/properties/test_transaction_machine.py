"""The rules of one transactional id against a model of a page: the tables of facts §17.2, §17.3, §17.5 and §17.12."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from logyard.broker.clock import Now
from logyard.broker.errors import ErrorCode
from logyard.broker.model import TopicPartition
from logyard.broker.transactions import addition, completion, expiry, initialization, raising_end, record_format
from logyard.broker.transactions.events import Initialize, Needs, Producer
from logyard.broker.transactions.transaction import Change, Transaction
from tests.support.lengths import examples

TIMEOUT_MS, EXPIRATION_MS = 1_000, 10_000
LAST, LARGEST = 32766, 32767
TP = [TopicPartition("t", number) for number in range(4)]

# What EndTxn is answered where nothing is open, by state: for a commit, for an abort.
END = {
    "Empty": (48, 48),
    "PrepareCommit": (51, 48),
    "PrepareAbort": (48, 51),
    "CompleteCommit": (0, 48),
    "CompleteAbort": (48, 0),
}
# What EndTxn v5 is answered with the epoch before, and with the present one: for a commit, for an abort.
RETRIED = {"PrepareCommit": (51, 48), "PrepareAbort": (48, 51), "CompleteCommit": (0, 48), "CompleteAbort": (90, 0)}
ENDED = ("Empty", "CompleteCommit", "CompleteAbort")


@dataclass
class Model:
    """What is in memory; `next` is what it becomes when the log has the pending change, None if nothing is pending."""

    producer_id: int = 1000
    epoch: int = -1
    last_epoch: int = -1
    last_id: int = -1
    state: str = "Empty"
    partitions: set[TopicPartition] = field(default_factory=set)
    started_ms: int = 0
    failed_fence: bool = False
    next_id: int = -1
    raises: bool = False
    next: tuple[str, int, int, int, set[TopicPartition], int] | None = None
    next_raises: tuple[bool, int] = (False, -1)
    is_fence: bool = False

    def initialize(self, pair: tuple[int, int] | None, fresh: int, version: int) -> int:
        if self.next is not None:
            return 51
        is_known = pair is None or self.epoch == -1 or pair[0] == self.producer_id
        if not is_known and not (pair is not None and pair[0] == self.last_id and pair[1] >= LAST):
            return 90
        if self.state.startswith("Prepare"):
            return 51
        if self.state == "Ongoing":
            self.fence(version)
            return 0
        current = pair == (self.producer_id, self.epoch)
        is_fenced = pair is not None and self.epoch == LARGEST and pair[1] == self.last_epoch != -1
        if self.epoch >= LAST and (pair is None or current or is_fenced):
            found = fresh, 0, pair[1] if pair else -1
        elif pair is None:
            found = self.producer_id, self.epoch + 1, -1
        elif current or self.epoch == -1:
            found = self.producer_id, self.epoch + 1, self.epoch
        elif pair[1] == self.last_epoch != -1:
            found = self.producer_id, self.epoch, self.last_epoch
        else:
            return 90
        self.next, self.next_raises = ("Empty", *found, set(), 0), (False, -1)
        return 0

    def fence(self, version: int) -> None:
        if version == 2:
            self.prepare(False, -1)
            return
        if not self.failed_fence:
            self.epoch = min(self.epoch + 1, LARGEST)
        self.last_epoch = -1
        self.is_fence = True
        self.next = ("PrepareAbort", self.producer_id, self.epoch, -1, self.partitions, self.started_ms)
        self.next_raises = (False, -1)

    def prepare(self, commits: bool, next_id: int, now_ms: int = 0) -> int:
        started_ms = self.started_ms if self.state == "Ongoing" else now_ms
        epoch = min(self.epoch + 1, LARGEST)
        state = "PrepareCommit" if commits else "PrepareAbort"
        self.next = (state, self.producer_id, epoch, epoch - 1, self.partitions, started_ms)
        self.next_raises = (True, next_id)
        return 0

    def end_and_raise(self, pair: tuple[int, int], commits: bool, fresh: int, now_ms: int) -> int:
        if self.is_to_be(pair):
            return 51
        before = (self.producer_id, self.epoch - 1) if self.epoch else (self.last_id, LAST)
        is_retry = self.raises and self.state in RETRIED and pair == before
        if pair[0] != self.producer_id and not is_retry:
            return 49
        if not is_retry and pair[1] != self.epoch:
            return 90
        if self.next is not None:
            return 51
        if not is_retry and self.state.startswith("Prepare"):
            return 90
        next_id = fresh if self.epoch >= LAST else -1
        if is_retry:
            code = RETRIED[self.state][0 if commits else 1]
            return code if code or self.epoch < LARGEST else self.prepare(False, next_id, now_ms)
        if commits and self.state != "Ongoing":
            return 48
        return self.prepare(commits, next_id, now_ms)

    def is_to_be(self, pair: tuple[int, int]) -> bool:
        return self.next is not None and pair == self.next[1:3] and pair != (self.producer_id, self.epoch)

    def refusal(self, pair: tuple[int, int]) -> int:
        if self.is_to_be(pair):
            return 51
        if pair[0] != self.producer_id:
            return 49
        return 0 if pair[1] == self.epoch else 90

    def change(self, state: str, partitions: set[TopicPartition], started_ms: int) -> int:
        self.next = (state, self.producer_id, self.epoch, self.last_epoch, partitions, started_ms)
        self.next_raises = (False, -1)
        return 0

    def add(self, pair: tuple[int, int], added: set[TopicPartition], now_ms: int) -> int:
        if refused := self.refusal(pair):
            return refused
        if self.next is not None or self.state.startswith("Prepare"):
            return 51
        if self.state == "Ongoing" and added <= self.partitions:
            return 0
        started_ms = self.started_ms if self.state == "Ongoing" else now_ms
        return self.change("Ongoing", self.partitions | added, started_ms)

    def end(self, pair: tuple[int, int], commits: bool) -> int:
        if refused := self.refusal(pair):
            return refused
        if self.next is not None:
            return 51
        if self.state == "Ongoing":
            return self.change("PrepareCommit" if commits else "PrepareAbort", self.partitions, self.started_ms)
        return END[self.state][0 if commits else 1]

    def acknowledge(self) -> None:
        assert self.next is not None
        state, producer_id, epoch, last_epoch, partitions, started_ms = self.next
        if state == "Empty" or producer_id != self.producer_id:
            self.last_id = self.producer_id
        self.raises, self.next_id = self.next_raises
        self.state, self.producer_id, self.epoch, self.last_epoch = state, producer_id, epoch, last_epoch
        self.partitions, self.started_ms = partitions, started_ms
        self.next, self.is_fence = None, False
        if state.startswith("Prepare"):
            self.failed_fence = False
            if self.next_id != -1:
                producer_id, epoch = self.next_id, 0
            complete = state.replace("Prepare", "Complete")
            self.next = (complete, producer_id, epoch, self.last_epoch, set(), started_ms)
            self.next_raises = (self.raises, -1)

    def fail(self) -> None:
        self.failed_fence = self.failed_fence or self.is_fence
        self.next, self.is_fence = None, False


class Machine(RuleBasedStateMachine):
    """Both are asked the same; they have to answer the same, and stand the same."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms, self.last_fresh = 100, 1000
        self.model = Model()
        request = Initialize("x", TIMEOUT_MS)
        self.transaction: Transaction = initialization.new_transaction(request, 1000, self.now)
        self.change: Change | None = None

    @property
    def now(self) -> Now:
        return Now(self.now_ms, 1_600_000_000_000 + self.now_ms)

    def pair(self, which: str) -> tuple[int, int]:
        model = self.model
        return {
            "current": (model.producer_id, model.epoch),
            "before": (model.producer_id, model.epoch - 1),
            "ahead": (model.producer_id, model.epoch + 1),
            "last": (model.producer_id, model.last_epoch),
            "replaced": (model.last_id, LAST),
            "other": (7, model.epoch),
            "pending": model.next[1:3] if model.next else (model.producer_id, model.epoch),
        }[which]

    def answered(self, decided: Change | ErrorCode, code: int) -> None:
        if isinstance(decided, Change):
            assert code == 0
            self.change = decided
        else:
            assert int(decided) == code

    pairs = st.sampled_from(["current", "current", "before", "ahead", "last", "replaced", "other", "pending"])

    @rule(which=st.none() | pairs, version=st.sampled_from([0, 2]))
    def initialize(self, which: str | None, version: int) -> None:
        pair = self.pair(which) if which else None
        if pair is not None and min(pair) < 0:
            return
        request = Initialize("x", TIMEOUT_MS, Producer(*pair) if pair else None)
        self.last_fresh += 1
        decided = initialization.initialize(self.transaction, request, self.now, version=version)
        if decided is Needs.PRODUCER_ID:
            decided = initialization.initialize(self.transaction, request, self.now, self.last_fresh, version=version)
        assert not isinstance(decided, Needs)
        self.answered(decided, self.model.initialize(pair, self.last_fresh, version))

    @rule(which=pairs, added=st.sets(st.sampled_from(TP), min_size=1))
    def add(self, which: str, added: set[TopicPartition]) -> None:
        pair = self.pair(which)
        if self.model.epoch < 0:
            return
        decided = addition.add(self.transaction, Producer(*pair), added, self.now)
        self.answered(decided, self.model.add(pair, added, self.now_ms))

    @rule(which=pairs, asked=st.sets(st.sampled_from(TP), min_size=1))
    def verify(self, which: str, asked: set[TopicPartition]) -> None:
        pair, model = self.pair(which), self.model
        refused = model.refusal(pair) or (51 if model.state.startswith("Prepare") else 0)
        expected = {tp: refused or (0 if tp in model.partitions else 120) for tp in asked}
        assert addition.verify(self.transaction, Producer(*pair), asked) == expected

    @rule(which=pairs, commits=st.booleans())
    def end(self, which: str, commits: bool) -> None:
        pair = self.pair(which)
        if self.model.epoch < 0:
            return
        decided = completion.end(self.transaction, Producer(*pair), self.now, commits=commits)
        self.answered(decided, self.model.end(pair, commits))

    @rule(which=pairs, commits=st.booleans())
    def end_and_raise(self, which: str, commits: bool) -> None:
        pair = self.pair(which)
        if self.model.epoch < 0:
            return
        self.last_fresh += 1
        decided = raising_end.end(self.transaction, Producer(*pair), self.now, commits=commits)
        if decided is Needs.PRODUCER_ID:
            fresh = self.last_fresh
            decided = raising_end.end(self.transaction, Producer(*pair), self.now, commits=commits, fresh_id=fresh)
        assert not isinstance(decided, Needs)
        self.answered(decided, self.model.end_and_raise(pair, commits, self.last_fresh, self.now.wall_ms))

    @rule(ms=st.sampled_from([1, 400, 700, 1_001]), version=st.sampled_from([0, 2]))
    def pass_time(self, ms: int, version: int) -> None:
        self.now_ms += ms
        model = self.model
        is_due = model.next is None and model.state == "Ongoing" and model.started_ms + TIMEOUT_MS < self.now_ms
        assert completion.is_timed_out(self.transaction, self.now) is is_due
        if is_due:
            model.fence(version)
            self.change = completion.fence(self.transaction, self.now, version)
        is_over = expiry.is_expired(self.transaction, self.now, 0)
        assert is_over is (model.next is None and model.state in ENDED)

    @precondition(lambda self: self.change is not None)
    @rule()
    def acknowledge(self) -> None:
        assert self.change is not None
        self.transaction.make(self.change)
        self.model.acknowledge()
        is_decided = self.model.next is not None
        self.change = completion.begin_completion(self.transaction, self.now) if is_decided else None

    @precondition(lambda self: self.change is not None and not self.model.state.startswith("Prepare"))
    @rule()
    def fail(self) -> None:
        assert self.change is not None
        self.transaction.give_up(self.change)
        self.model.fail()
        self.change = None

    @precondition(lambda self: self.change is None and self.model.state in ENDED and self.model.epoch >= 0)
    @rule(epoch=st.sampled_from([LAST - 1, LAST]))
    def do_age(self, epoch: int) -> None:
        """Many initializations in one step, as a load would find them."""
        stored = self.transaction.stored
        self.model.epoch = epoch
        self.transaction.stored = type(stored)(
            stored.producer_id,
            epoch,
            stored.timeout_ms,
            stored.state,
            updated_ms=stored.updated_ms,
            previous_id=stored.previous_id,
            client_version=stored.client_version,
        )

    @invariant()
    def do_compare(self) -> None:
        model, stored = self.model, self.transaction.stored
        assert (stored.state.label, stored.producer_id, stored.epoch) == (model.state, model.producer_id, model.epoch)
        assert set(stored.partitions) == model.partitions
        assert self.transaction.last_epoch == model.last_epoch
        assert (stored.previous_id, stored.next_id) == (model.last_id, model.next_id)
        assert (stored.client_version == 2) is model.raises or stored.state.label in ("Empty", "Ongoing")
        assert record_format.decode_value(record_format.value(stored, 1)) == stored
        pending = self.transaction.pending
        assert (pending is None) is (model.next is None)
        if pending is not None and model.next is not None:
            assert (pending.state.label, pending.to.producer_id, pending.to.epoch) == model.next[:3]


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=examples(80), stateful_step_count=40, deadline=None)
