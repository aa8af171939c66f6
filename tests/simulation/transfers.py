"""What transactions were meant to write, and what readers of committed records may see of it.

Each transfer is one transaction: some records on one or more partitions, perhaps a group's offset. A reader sees all of
a committed transfer and nothing of any other, each record once, the transfers of one account in their order.
"""

import enum
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from logyard.broker.model import TopicPartition
from tests.simulation.balances import entry
from tests.simulation.ledger import BrokenPromise


class Fate(enum.Enum):
    """`UNKNOWN`: the commit was asked for and nothing certain was answered."""

    NOT_ASKED = "its commit was never asked for"
    ABORTED = "it was aborted"
    UNKNOWN = "unknown"
    COMMITTED = "committed"


@dataclass
class Transfer:
    """One transaction of an account. Its values begin with both and their place in it."""

    account: str
    number: int
    with_offset: bool = False
    fate: Fate = Fate.NOT_ASKED
    values: list[tuple[TopicPartition, bytes]] = field(default_factory=list)

    def add(self, tp: TopicPartition, count: int) -> list[bytes]:
        """New records of it for a partition."""
        first = len(self.values)
        made = [b"%s %d %d" % (self.account.encode(), self.number, first + n) for n in range(count)]
        self.values += [(tp, value) for value in made]
        return made

    def entries(self, tp: TopicPartition, moves: Sequence[tuple[str, int]]) -> list[bytes]:
        """New records of it for a partition of the bank: accounts and their balances."""
        first = len(self.values)
        made = [
            entry(b"%s %d %d" % (self.account.encode(), self.number, first + n), account, balance)
            for n, (account, balance) in enumerate(moves)
        ]
        self.values += [(tp, value) for value in made]
        return made


@dataclass
class Account:
    """Whoever uses one transactional id, one producer after the other; its group has the same name."""

    name: str
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    transfers: dict[int, Transfer] = field(default_factory=dict)

    def begin(self, *, with_offset: bool) -> Transfer:
        number = next(self.numbers)
        made = self.transfers[number] = Transfer(self.name, number, with_offset)
        return made


class Transfers:
    """All accounts, and what a reader of committed records has seen.

    `keeps`: nothing acknowledged may be lost; otherwise nothing is promised to readers either.
    """

    def __init__(self, *, keeps: bool = True) -> None:
        self._keeps = keeps
        self.accounts: dict[str, Account] = {}
        self._seen: dict[TopicPartition, dict[bytes, int]] = {}
        self._latest: dict[tuple[TopicPartition, str], int] = {}

    def account(self, name: str) -> Account:
        return self.accounts.setdefault(name, Account(name))

    def saw(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        """A reader of committed records was given `value`. Raises BrokenPromise."""
        if not self._keeps:
            return
        account, number, *_ = value.decode().split()
        transfer = self.accounts[account].transfers[int(number)]
        if transfer.fate in (Fate.NOT_ASKED, Fate.ABORTED):
            raise BrokenPromise(f"{tp}: {value!r} is shown at {offset}, and of its transaction {transfer.fate.value}")
        before = self._seen.setdefault(tp, {}).setdefault(value, offset)
        if before != offset:
            raise BrokenPromise(f"{tp}: {value!r} is there twice, at {before} and at {offset}")
        if self._latest.get((tp, account), -1) > transfer.number:
            raise BrokenPromise(f"{tp}: {value!r} at {offset} comes after a later transaction of {account}")
        self._latest[tp, account] = transfer.number

    def settle(self) -> None:
        """Everything has been read: what was committed is whole, and of what is unknown all or nothing is there."""
        for transfer in self._all():
            missing = [value for tp, value in transfer.values if value not in self._seen.get(tp, {})]
            if transfer.fate is Fate.COMMITTED and missing:
                raise BrokenPromise(f"{missing} of a committed transaction are lost")
            if transfer.fate is Fate.UNKNOWN and 0 < len(missing) < len(transfer.values):
                raise BrokenPromise(f"a torn transaction: {missing} of {transfer.values} are not shown")

    def check_offset(self, account: str, found: int) -> None:
        """`found`: what the account's group has committed; -1 for nothing. Raises BrokenPromise."""
        carried = [t for t in self.accounts[account].transfers.values() if t.with_offset]
        wanted = max((t.number for t in carried if self._is_shown(t)), default=-1)
        if found != wanted:
            raise BrokenPromise(f"the group {account} is at {found}, its last committed transaction says {wanted}")

    def count(self, fate: Fate) -> int:
        return sum(transfer.fate is fate for transfer in self._all())

    def _all(self) -> list[Transfer]:
        return [transfer for account in self.accounts.values() for transfer in account.transfers.values()]

    def _is_shown(self, transfer: Transfer) -> bool:
        return any(value in self._seen.get(tp, {}) for tp, value in transfer.values)
