"""A bank: accounts on several partitions, whose sum no transfer changes."""

from collections.abc import Mapping, Sequence

from logyard.broker.model import TopicPartition
from tests.simulation.ledger import BrokenPromise

TOPIC, PARTITIONS = "vault", 2
ACCOUNTS = {"a": 0, "b": 0, "c": 1, "d": 1}
"""By their names, the partition of each."""
OPENING = 100
TOTAL = OPENING * len(ACCOUNTS)

Seen = Mapping[TopicPartition, Sequence[tuple[int, bytes]]]
"""Committed records of each partition, in the order of their offsets. A value ends with an account and its balance."""


def place(account: str) -> TopicPartition:
    return TopicPartition(TOPIC, ACCOUNTS[account])


def entry(head: bytes, account: str, balance: int) -> bytes:
    return b"%s %s %d" % (head, account.encode(), balance)


def balances(seen: Seen, ends: Mapping[TopicPartition, int]) -> dict[str, int]:
    """Every account's balance by what was read before these offsets.

    Raises BrokenPromise where their sum is not what was in the bank at the start.
    """
    found = dict.fromkeys(ACCOUNTS, OPENING)
    for tp, records in seen.items():
        for offset, value in records:
            *_, account, balance = value.decode().split()
            if offset < ends[tp] and account in ACCOUNTS:
                found[account] = int(balance)
    if sum(found.values()) != TOTAL:
        raise BrokenPromise(f"the bank holds {sum(found.values())} and not {TOTAL}: {found} before {dict(ends)}")
    return found
