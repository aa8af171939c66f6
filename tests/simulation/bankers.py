"""Bankers read what is in the bank, and move some of it, in one transaction.

A banker's transaction begins with an empty note on every partition. All earlier transactions of its id have ended by
then, so what is committed before the notes is one state of the bank, whoever wrote it: its sum must be what it was at
the start. Bankers share one transactional id.
"""

from logyard.broker.model import TopicPartition
from tests.simulation.balances import ACCOUNTS, PARTITIONS, TOPIC, balances, place
from tests.simulation.clients import TROUBLE
from tests.simulation.cluster import Cluster
from tests.simulation.committed import Window
from tests.simulation.tellers import ABORT_CHANCE, ATTEMPTS, GivenUp, Session, Teller
from tests.simulation.transfers import Account

NOTE = "-"


class Banker(Teller):
    """See the head of this file."""

    topic, partitions = TOPIC, PARTITIONS

    def __init__(
        self, name: str, cluster: Cluster, seed: str, account: Account, *, hasty: bool = False, ends_held: float = 0.0
    ) -> None:
        super().__init__(name, cluster, seed, account, hasty=hasty, ends_held=ends_held)
        self._window = Window(f"{name} reads", cluster, seed, {TOPIC: PARTITIONS})

    async def _transfer(self, session: Session) -> None:
        transfer = self._account.begin(with_offset=False)
        tps = [TopicPartition(TOPIC, p) for p in range(PARTITIONS)]
        await self._add(session, tps)
        notes = {tp: await self._send(session, tp, transfer.entries(tp, [(NOTE, 0)])) for tp in tps}
        await self._read_up_to(notes)
        held = balances(self._window.seen, notes)
        self.trace.count("bank: sums")
        for tp, entries in self._moves(held).items():
            await self._send(session, tp, transfer.entries(tp, entries))
        await self._end(session, transfer, commit=self.chance.random() >= ABORT_CHANCE)

    async def _read_up_to(self, notes: dict[TopicPartition, int]) -> None:
        if -1 in notes.values():
            raise GivenUp("a note whose offset nobody knows")
        for _ in range(ATTEMPTS):
            try:
                for tp, end in notes.items():
                    await self._window.fetch_up_to(tp, end)
            except TROUBLE as trouble:
                self.trace.count(f"bank: read: {type(trouble).__name__}")
            if all(self._window.position[tp] >= end for tp, end in notes.items()):
                return
            await self._window.looked_up()
        raise GivenUp("a bank that cannot be read")

    def _moves(self, held: dict[str, int]) -> dict[TopicPartition, list[tuple[str, int]]]:
        """Take from one account and give to one or two others: the new balances, by partition."""
        debited, *credited = self.chance.sample(list(ACCOUNTS), self.chance.choice((2, 3)))
        after = dict(held)
        for account in credited:
            amount = self.chance.randint(1, 20)
            after[debited] -= amount
            after[account] += amount
        moves: dict[TopicPartition, list[tuple[str, int]]] = {}
        for account in (debited, *credited):
            moves.setdefault(place(account), []).append((account, after[account]))
        return moves
