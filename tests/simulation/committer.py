"""A client of the group coordinator: commits growing offsets, and asks for them in the end."""

from logyard.broker.errors import ErrorCode
from logyard.broker.replication.ports import LinkError
from tests.simulation.clients import TROUBLE, Client
from tests.simulation.ledger import BrokenPromise

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10


class Committer(Client):
    """One group that nobody joins. `acknowledged` is the last offset that was committed for sure."""

    topic = "safe"

    def start(self) -> None:
        self.acknowledged = -1
        self.attempted = -1
        self.stopping = False
        self._coordinator: tuple[str, int] | None = None
        self.task = self.process.spawn(self._run())

    async def _run(self) -> None:
        number = 0
        while not self.stopping:
            number += 1
            try:
                await self._commit(number)
            except TROUBLE as trouble:
                self.trace.count(f"commit: {type(trouble).__name__}")
                self._coordinator = None
            await self.rest(0.4)

    async def _find(self) -> tuple[str, int]:
        if self._coordinator is None:
            asked = self.link(self.chance.choice(self.cluster.addresses))
            answer = await asked.request(FIND_COORDINATOR, 3, {"key": self.name, "key_type": 0})
            if self.count("find coordinator", answer.error_code) is not ErrorCode.NONE:
                raise LinkError("no coordinator")
            self._coordinator = (answer.host, answer.port)
        return self._coordinator

    async def _commit(self, number: int) -> None:
        link = self.link(await self._find())
        partition = {"partition_index": 0, "committed_offset": number, "committed_leader_epoch": -1}
        fields = {
            "group_id": self.name,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": self.topic, "partitions": [{**partition, "committed_metadata": ""}]}],
        }
        self.attempted = number
        answer = await link.request(OFFSET_COMMIT, 8, fields)
        if self.count("commit", answer.topics[0].partitions[0].error_code) is not ErrorCode.NONE:
            raise LinkError("not committed")
        self.acknowledged = number

    async def verify(self) -> bool:
        """Ask the coordinator; False where it cannot be asked. Raises BrokenPromise."""
        try:
            link = self.link(await self._find())
            topics = [{"name": self.topic, "partition_indexes": [0]}]
            answer = await link.request(OFFSET_FETCH, 5, {"group_id": self.name, "topics": topics})
        except TROUBLE:
            self._coordinator = None
            return False
        code = answer.error_code or answer.topics[0].partitions[0].error_code
        if self.count("fetch offsets", code) is not ErrorCode.NONE:
            self._coordinator = None
            return False
        found = answer.topics[0].partitions[0].committed_offset
        if not self.acknowledged <= found <= self.attempted:
            raise BrokenPromise(
                f"the group's offset is {found}; {self.acknowledged} was committed, {self.attempted} tried last"
            )
        return True

    async def stopped(self) -> None:
        """Commit no more."""
        self.stopping = True
        await self.task

    async def verified(self) -> None:
        while not await self.verify():
            await self.rest(0.2)
