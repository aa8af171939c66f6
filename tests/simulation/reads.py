"""Who has read whose writes: transactions that have read each other's, in a circle, were not isolated.

Adya's G1c. Readers of committed records see a transaction after its end only, so the order of ends is an order of all
reads. Aborted transactions count as readers, too: what they read was read before they ended.
"""

from graphlib import CycleError, TopologicalSorter

from tests.simulation.ledger import BrokenPromise

Name = tuple[str, int]
"""A transaction: its account and its number."""


class Reads:
    """Of each transaction, whose writes it has read."""

    def __init__(self) -> None:
        self._writers: dict[Name, set[Name]] = {}
        self.count = 0

    def note(self, reader: Name, value: bytes) -> None:
        """`value` names the transaction that has written it first."""
        account, number, *_ = value.decode().split()
        self._writers.setdefault(reader, set()).add((account, int(number)))
        self.count += 1

    def check(self) -> None:
        """Raises BrokenPromise where transactions have read each other's writes in a circle."""
        try:
            TopologicalSorter(self._writers).prepare()
        except CycleError as error:
            raise BrokenPromise(f"transactions have read each other's writes: {error.args[1]}") from error
