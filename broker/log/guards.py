"""Which producers may begin a transaction in a log: those that their coordinator has verified (KIP-890, facts §17.3).

Rule 1: a producer without an open transaction in the log needs a verified guard: the leader asks the coordinator
whether the partition is in the transaction, and only then appends.
Rule 2: any batch or marker of a transaction that is written, also a replicated one, ends the producer's guard. A later
answer is ignored: it verifies a guard that is no longer here. With `transaction.version` 2 a marker has the epoch of
the producer's next transaction, whose guard it leaves.
Rule 3: the lowest sequence that was asked for comes first. Otherwise a later batch could be written before an earlier
one that failed, and the earlier one could never be written again (KAFKA-14920). With `transaction.version` 2 every
transaction begins with sequence 0, in a partition that knows nothing of the producer too.
"""

from dataclasses import dataclass

from logyard.broker.errors import ApiError, ErrorCode
from logyard.broker.records.header import BatchHeader


@dataclass(slots=True)
class VerificationSwitch:
    """transaction.partition.verification.enable; a change counts from the next append on."""

    is_on: bool = False


@dataclass(slots=True, eq=False)
class Guard:
    """One verification of one producer; only the very object that is in `Guards` counts.

    `raises`: the client goes by `transaction.version` 2.
    """

    epoch: int
    lowest_sequence: int
    begun_ms: int
    raises: bool = False
    is_verified: bool = False
    producer_id: int = -1
    among: "Guards | None" = None

    def give_up(self) -> None:
        """The id's coordinator knows another producer: nothing of this one is ever verified. It is not kept, since who
        sends one made-up producer id after the other would fill the memory."""
        if self.among is not None and self.among.of(self.producer_id) is self:
            self.among.end(self.producer_id)


class Guards:
    """The guards of one log, by producer id. `switch` is shared by all logs of a broker."""

    __slots__ = ("_guards", "switch")

    def __init__(self, switch: VerificationSwitch | None = None) -> None:
        self.switch = switch or VerificationSwitch()
        self._guards: dict[int, Guard] = {}

    def __len__(self) -> int:
        return len(self._guards)

    def begin(self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, raises: bool = False) -> Guard:
        """Return the producer's guard, a new one for a higher epoch; `sequence` is that of the batch to be appended.

        A commit of offsets has no sequence (-1).
        """
        guard = self._guards.get(producer_id)
        if guard is None or epoch > guard.epoch:
            guard = self._guards[producer_id] = Guard(
                epoch, sequence, now_ms, raises, producer_id=producer_id, among=self
            )
        elif epoch == guard.epoch and sequence < guard.lowest_sequence:
            guard.lowest_sequence = sequence
        return guard

    def of(self, producer_id: int) -> Guard | None:
        """The producer's guard, None if it has none."""
        return self._guards.get(producer_id)

    def is_of(self, header: BatchHeader) -> bool:
        """Whether the producer's guard is of this very epoch."""
        guard = self._guards.get(header.producer_id)
        return guard is not None and guard.epoch == header.producer_epoch

    def check(self, producer_id: int, epoch: int, sequence: int, *, is_known: bool = True) -> None:
        """Check a transactional batch of a producer without an open transaction here; `sequence` -1 is not checked.

        `is_known`: the log knows something of the producer; the caller has checked the epoch against that
        (KAFKA-19690). Raises ApiError: INVALID_PRODUCER_EPOCH (a newer epoch has asked), INVALID_TXN_STATE (no verified
        guard), OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        guard = self._guards.get(producer_id)
        if guard is not None and epoch < guard.epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id}: epoch {epoch} is older than {guard.epoch}"
            )
        if self.switch.is_on and (guard is None or not guard.is_verified or guard.epoch != epoch):
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE, f"producer {producer_id}: the batch is not part of an open transaction"
            )
        if guard is None or guard.epoch != epoch:
            return
        if guard.raises and sequence > 0 and not is_known:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id}: sequence {sequence} is the first here, 0 is expected",
            )
        if sequence > guard.lowest_sequence:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer_id}: sequence {sequence} before {guard.lowest_sequence}, which came earlier",
            )

    def end(self, producer_id: int) -> None:
        """End the guard: a batch or marker of the producer's transaction was written."""
        self._guards.pop(producer_id, None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget the guards that were not used for `expiration_ms`."""
        idle = [pid for pid, guard in self._guards.items() if now_ms - guard.begun_ms >= expiration_ms]
        for producer_id in idle:
            del self._guards[producer_id]
