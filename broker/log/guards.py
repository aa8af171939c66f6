"""Which producers may begin a transaction in a log: those that their coordinator has verified (KIP-890, facts §17.3).

Rule 1: a producer without an open transaction in the log needs a verified guard: the leader asks the coordinator
whether the partition is in the transaction, and only then appends.
Rule 2: any batch or marker of a transaction that is written, also a replicated one, ends the producer's guard. A later
answer is ignored: it verifies a guard that is no longer here.
Rule 3: the lowest sequence that was asked for comes first. Otherwise a later batch could be written before an earlier
one that failed, and the earlier one could never be written again (KAFKA-14920).
"""

from dataclasses import dataclass

from logyard.broker.errors import ApiError, ErrorCode


@dataclass(slots=True)
class VerificationSwitch:
    """transaction.partition.verification.enable; a change counts from the next append on."""

    is_on: bool = False


@dataclass(slots=True, eq=False)
class Guard:
    """One verification of one producer; only the very object that is in `Guards` counts."""

    epoch: int
    lowest_sequence: int
    begun_ms: int
    is_verified: bool = False


class Guards:
    """The guards of one log, by producer id. `switch` is shared by all logs of a broker."""

    __slots__ = ("_guards", "switch")

    def __init__(self, switch: VerificationSwitch | None = None) -> None:
        self.switch = switch or VerificationSwitch()
        self._guards: dict[int, Guard] = {}

    def __len__(self) -> int:
        return len(self._guards)

    def begin(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> Guard:
        """Return the producer's guard, a new one for a higher epoch; `sequence` is that of the batch to be appended.

        A commit of offsets has no sequence (-1).
        """
        guard = self._guards.get(producer_id)
        if guard is None or epoch > guard.epoch:
            guard = self._guards[producer_id] = Guard(epoch, sequence, now_ms)
        elif epoch == guard.epoch and sequence < guard.lowest_sequence:
            guard.lowest_sequence = sequence
        return guard

    def check(self, producer_id: int, epoch: int, sequence: int) -> None:
        """Check a transactional batch of a producer without an open transaction here; `sequence` -1 is not checked.

        The caller has checked the epoch against what the log knows (KAFKA-19690). Raises ApiError:
        INVALID_PRODUCER_EPOCH (a newer epoch has asked), INVALID_TXN_STATE (no verified guard),
        OUT_OF_ORDER_SEQUENCE_NUMBER.
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
        if guard is not None and guard.epoch == epoch and sequence > guard.lowest_sequence:
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
