"""Walkers read one topic and write another, several times within a transaction, while others walk the other way."""

from collections.abc import Mapping

from logyard.broker.model import TopicPartition
from tests.simulation.clients import TROUBLE
from tests.simulation.cluster import Cluster
from tests.simulation.committed import Window
from tests.simulation.reads import Reads
from tests.simulation.tellers import ABORT_CHANCE, Session, Teller
from tests.simulation.transfers import Account

TOPICS: Mapping[str, int] = {"east": 1, "west": 1}
ROUNDS = (2, 3)
ROUND_S = 0.15


class Walker(Teller):
    """Copies from one of TOPICS to the other; the offset that it has read moves with its transaction."""

    def __init__(self, name: str, cluster: Cluster, seed: str, account: Account, *, to: str, reads: Reads) -> None:
        super().__init__(name, cluster, seed, account)
        (self._from,) = (topic for topic in TOPICS if topic != to)
        self.topic, self.partitions, self._reads = to, TOPICS[to], reads
        self._window = Window(f"{name} reads", cluster, seed, {self._from: TOPICS[self._from]})

    async def _transfer(self, session: Session) -> None:
        transfer = self._account.begin(with_offset=True)
        await self._add(session, [TopicPartition(self.topic, p) for p in range(self.partitions)])
        for _ in range(self.chance.choice(ROUNDS)):
            await self._read((transfer.account, transfer.number))
            tp = TopicPartition(self.topic, self.chance.randrange(self.partitions))
            await self._send(session, tp, transfer.add(tp, 1))
            await self.rest(ROUND_S)
        await self._add_offset(session, transfer)
        await self._end(session, transfer, commit=self.chance.random() >= ABORT_CHANCE)

    async def _read(self, reader: tuple[str, int]) -> None:
        """What is new, as this transaction sees it; nothing where it cannot be read now."""
        for tp, seen in self._window.seen.items():
            known = len(seen)
            try:
                await self._window.fetch(tp)
            except TROUBLE as trouble:
                self.trace.count(f"walk: read: {type(trouble).__name__}")
                await self._window.looked_up()
            for _, value in seen[known:]:
                self._reads.note(reader, value)
