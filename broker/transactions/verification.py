"""Whether a partition is in a producer's transaction, asked of its coordinator before a leader appends (facts §17.3).

For clients that go by `transaction.version` 2 the leader asks for the partition to be added (facts §17.12).

Rule 1: each broker is asked one request at a time (AddPartitionsToTxn with verify_only); what is asked meanwhile goes
        with the next one, all transactions together.
Rule 2: a request asks once about a transactional id: questions of one producer and epoch become one, with the
        partitions of all. Of two epochs the lower one ends, with INVALID_PRODUCER_EPOCH; of two producers the earlier
        one, with NETWORK_EXCEPTION, so that its client asks again.
Rule 3: every question is answered: what the coordinator leaves out counts as NETWORK_EXCEPTION.
Rule 4: where this broker coordinates the id itself, its coordinator is asked without a connection or a queue.
"""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import NamedTuple, Protocol

import structlog

from logyard.broker import tasks
from logyard.broker.errors import ApiError, CorruptData, ErrorCode, LogyardError
from logyard.broker.event_loop import NewPending, Pending
from logyard.broker.log.guards import Guard, VerificationSwitch
from logyard.broker.model import BrokerInfo, TopicPartition
from logyard.broker.replication.ports import LinkError
from logyard.broker.replication.produce import Producing
from logyard.broker.transactions.events import Producer
from logyard.broker.transactions.transaction import RAISING_VERSION
from logyard.broker.transactions.verification_figures import VerificationFigures

log = structlog.get_logger("logyard.transactions")

Errors = Mapping[TopicPartition, ErrorCode]
"""The partitions that may not be appended to, and why; the others may."""

NOT_TOLD = ErrorCode.NETWORK_EXCEPTION

Sleep = Callable[[float], Awaitable[None]]

# After which times a partition is added again while the transaction before is being ended. Kafka does so each 20 ms for
# 100 ms; that end takes some milliseconds, mostly. After the last the client asks again.
ADD_AGAIN_S = (0.005, 0.005, 0.01, 0.02, 0.02, 0.04)


class FirstBatch(NamedTuple):
    """What is to be appended to one partition: -1 as sequence is a commit of offsets."""

    tp: TopicPartition
    sequence: int


@dataclass(frozen=True, slots=True)
class Question:
    """Whether these partitions are in the transaction of that id, producer and epoch; with `adds` they are added."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: Sequence[TopicPartition]
    adds: bool = False

    def is_of_same(self, other: "Question") -> bool:
        """Whether both ask for the same producer, epoch and way, of partitions that may be others."""
        return (self.producer_id, self.epoch, self.adds) == (other.producer_id, other.epoch, other.adds)


Answers = Mapping[str, Errors]
"""By transactional id, of those that the coordinator has answered for, what it refuses."""


class VerificationNotOffered(LogyardError):
    """The coordinator is too old to be asked: as in Kafka what it coordinates is appended unverified."""


class Ask(Protocol):
    """Asks a broker one request with these questions.

    Raises LinkError, CorruptData, VerificationNotOffered, and ApiError where the whole request is refused.
    """

    def __call__(self, broker: BrokerInfo, questions: Sequence[Question], /) -> Awaitable[Answers]: ...


class OwnCoordinator(Protocol):
    """The coordinator of this broker, as `TransactionCoordinator` is."""

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> Errors: ...

    async def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        *,
        client_version: int = 0,
    ) -> ErrorCode: ...


class Here(NamedTuple):
    """This broker, where it coordinates ids too."""

    broker_id: int
    coordinator: OwnCoordinator


@dataclass(slots=True)
class _Asked:
    question: Question
    pending: Pending[Errors]
    figures: VerificationFigures
    begun_s: float

    others: list["_Asked"] = field(default_factory=list)
    """Earlier ones of the same producer and epoch, which are asked with this one."""

    def asked_with(self) -> Question:
        """Return the question to send: this one, with the partitions of the others."""
        if not self.others:
            return self.question
        each = (tp for asked in (*self.others, self) for tp in asked.question.partitions)
        return replace(self.question, partitions=list(dict.fromkeys(each)))

    def refuse(self, code: ErrorCode) -> None:
        for asked in (*self.others, self):
            asked._answer(dict.fromkeys(asked.question.partitions, code))

    def answer(self, errors: Errors) -> None:
        for asked in (*self.others, self):
            asked._answer({tp: errors[tp] for tp in asked.question.partitions if tp in errors} if errors else errors)

    def _answer(self, errors: Errors) -> None:
        if not self.pending.done():
            self.pending.set_result(errors)
            self.figures.answered(self.begun_s, sum(code is not ErrorCode.NONE for code in errors.values()))


@dataclass(slots=True)
class _Queue:
    """What is to be asked of one broker; `is_asking` while a request is in flight."""

    broker: BrokerInfo
    waiting: dict[str, _Asked] = field(default_factory=dict)
    is_asking: bool = False


class Questions:
    """The questions to all coordinators. See the rules at the head of this file."""

    def __init__(
        self,
        coordinator_of: Callable[[str], BrokerInfo | None],
        ask: Ask,
        new_pending: NewPending,
        figures: VerificationFigures,
        here: Here | None = None,
    ) -> None:
        self._coordinator_of, self._ask, self._new_pending = coordinator_of, ask, new_pending
        self._figures, self._here = figures, here
        self._queues: dict[int, _Queue] = {}

    def put(self, question: Question) -> Errors | Awaitable[Errors]:
        """Ask; the answer has COORDINATOR_NOT_AVAILABLE while nobody coordinates the id."""
        broker = self._coordinator_of(question.transactional_id)
        if broker is None:
            return dict.fromkeys(question.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if self._here is not None and broker.id == self._here.broker_id:
            return self._ask_here(self._here.coordinator, question)
        return self._put(broker, question)

    def _ask_here(self, coordinator: OwnCoordinator, question: Question) -> Errors | Awaitable[Errors]:
        if question.adds:
            return self._add_here(coordinator, question)
        begun_s, producer = self._figures.monotonic(), Producer(question.producer_id, question.epoch)
        told = coordinator.verify_partitions(question.transactional_id, producer, question.partitions)
        return self._counted({tp: code for tp, code in told.items() if code is not ErrorCode.NONE}, begun_s)

    async def _add_here(self, coordinator: OwnCoordinator, question: Question) -> Errors:
        begun_s, producer = self._figures.monotonic(), Producer(question.producer_id, question.epoch)
        code = await coordinator.add_partitions(
            question.transactional_id, producer, question.partitions, client_version=RAISING_VERSION
        )
        return self._counted(dict.fromkeys(question.partitions, code) if code else {}, begun_s)

    def _counted(self, errors: Errors, begun_s: float) -> Errors:
        self._figures.answered(begun_s, len(errors))
        return errors

    def _put(self, broker: BrokerInfo, question: Question) -> Pending[Errors]:
        pending = self._new_pending()
        asked = _Asked(question, pending, self._figures, self._figures.monotonic())
        queue = self._queues.setdefault(broker.id, _Queue(broker))
        queue.broker = broker
        if self._replaces(queue.waiting.get(question.transactional_id), asked):
            queue.waiting[question.transactional_id] = asked
            if not queue.is_asking:
                queue.is_asking = True
                tasks.spawn(f"verify transactions at {broker.id}", self._work(queue))
        return asked.pending

    @staticmethod
    def _replaces(earlier: _Asked | None, asked: _Asked) -> bool:
        if earlier is None:
            return True
        if asked.question.is_of_same(earlier.question):
            asked.others, earlier.others = earlier.others, []
            asked.others.append(earlier)
            return True
        if asked.question.epoch < earlier.question.epoch:
            asked.refuse(ErrorCode.INVALID_PRODUCER_EPOCH)
            return False
        is_same = asked.question.epoch == earlier.question.epoch
        earlier.refuse(NOT_TOLD if is_same else ErrorCode.INVALID_PRODUCER_EPOCH)
        return True

    async def _work(self, queue: _Queue) -> None:
        try:
            while queue.waiting:
                asked, queue.waiting = queue.waiting, {}
                try:
                    await self._ask_all(queue.broker, asked)
                except Exception:
                    log.exception("transactions not verified", coordinator=queue.broker.id)
                finally:
                    for each in asked.values():
                        each.refuse(NOT_TOLD)  # whatever has gone wrong, nobody waits for ever
        finally:
            queue.is_asking = False

    async def _ask_all(self, broker: BrokerInfo, asked: Mapping[str, _Asked]) -> None:
        try:
            answers = await self._ask(broker, [each.asked_with() for each in asked.values()])
        except VerificationNotOffered as error:
            log.warning("transactions are appended unverified", coordinator=broker.id, why=str(error))
            answers = {transactional_id: {} for transactional_id, each in asked.items() if not each.question.adds}
            for each in asked.values():
                if each.question.adds:
                    each.refuse(ErrorCode.TRANSACTION_ABORTABLE)  # nobody would end what is appended
        except (LinkError, CorruptData) as error:
            log.info("transactions not verified", coordinator=broker.id, error=str(error), transactions=len(asked))
            return
        except ApiError as refused:
            log.warning("transactions not verified", coordinator=broker.id, error=refused.code.name)
            for each in asked.values():
                each.refuse(refused.code)
            return
        for transactional_id, errors in answers.items():
            if transactional_id in asked:
                asked[transactional_id].answer(errors)


class Ability(Enum):
    """What a client knows of transactions, by the version of its request."""

    OLD = auto()
    KNOWS_ABORTABLE = auto()
    """It knows TRANSACTION_ABORTABLE; others get INVALID_TXN_STATE instead."""
    ADDS = auto()
    """It goes by `transaction.version` 2: it does not add partitions, the leader does."""


@dataclass(frozen=True, slots=True)
class _Asker:
    """Whose batches are verified."""

    transactional_id: str
    producer_id: int
    epoch: int
    ability: Ability

    @property
    def adds(self) -> bool:
        return self.ability is Ability.ADDS

    def question(self, partitions: Iterable[TopicPartition]) -> Question:
        return Question(self.transactional_id, self.producer_id, self.epoch, list(partitions), self.adds)


class Verification:
    """What a leader does before it appends to a transaction that is not open in the partition's log."""

    def __init__(self, producing: Producing, questions: Questions, switch: VerificationSwitch, sleep: Sleep) -> None:
        self._producing, self._questions, self._switch, self._sleep = producing, questions, switch, sleep

    def begin(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        batches: Iterable[FirstBatch],
        ability: Ability,
    ) -> Errors | Awaitable[Errors]:
        """Verify partitions, or add them; what the log then takes is decided by their guards.

        Something to await where the coordinator has to be asked. Errors besides those of
        `Producing.begin_verification`: those of the coordinator, PRODUCER_FENCED as INVALID_PRODUCER_EPOCH.
        """
        if not self._switch.is_on and ability is not Ability.ADDS:
            return {}
        asker = _Asker(transactional_id, producer_id, epoch, ability)
        batches = list(batches)
        guards, errors = self._guards(asker, batches)
        if not guards:
            return errors
        asking = self._questions.put(asker.question(guards))
        if isinstance(asking, Mapping):
            return _settled(asker, guards, errors, asking)
        return self._verified(asker, batches, guards, errors, asking)

    def _guards(
        self, asker: _Asker, batches: Iterable[FirstBatch]
    ) -> tuple[dict[TopicPartition, Guard], dict[TopicPartition, ErrorCode]]:
        """Return the guards to verify, and why others need not be asked about."""
        guards: dict[TopicPartition, Guard] = {}
        errors: dict[TopicPartition, ErrorCode] = {}
        raises = asker.ability is Ability.ADDS
        for tp, sequence in batches:
            try:
                guard = self._producing.begin_verification(tp, asker.producer_id, asker.epoch, sequence, raises=raises)
            except LogyardError as error:
                errors[tp] = error.code if isinstance(error, ApiError) else ErrorCode.KAFKA_STORAGE_ERROR
                continue
            if guard is not None:
                guards[tp] = guard
        return guards, errors

    async def _verified(
        self,
        asker: _Asker,
        batches: Iterable[FirstBatch],
        guards: Mapping[TopicPartition, Guard],
        errors: dict[TopicPartition, ErrorCode],
        asking: Errors | Awaitable[Errors],
    ) -> Errors:
        """Wait for the answer; the end of the transaction before is waited for a little: clients that add do not ask
        for it."""
        pauses = iter(ADD_AGAIN_S if asker.adds else ())
        while True:
            refused = asking if isinstance(asking, Mapping) else await asking
            pause_s = next(pauses, None) if ErrorCode.CONCURRENT_TRANSACTIONS in refused.values() else None
            if pause_s is None:
                return _settled(asker, guards, errors, refused)
            await self._sleep(pause_s)
            guards, errors = self._guards(asker, batches)  # the marker of the transaction before may have come
            if not guards:
                return errors
            asking = self._questions.put(asker.question(guards))


def _settled(
    asker: _Asker, guards: Mapping[TopicPartition, Guard], errors: dict[TopicPartition, ErrorCode], refused: Errors
) -> Errors:
    """Mark the guards of what was not refused; return the errors with those of the rest."""
    for tp, guard in guards.items():
        code = refused.get(tp, ErrorCode.NONE)
        if code is ErrorCode.NONE:
            guard.is_verified = True
        else:
            if code is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
                guard.give_up()
            errors[tp] = _for_clients(code, knows_abortable=asker.ability is not Ability.OLD)
    return errors


def _for_clients(code: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code
