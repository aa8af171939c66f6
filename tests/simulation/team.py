"""Members of one consumer group: they join, get assignments, send heartbeats, and fall silent.

Two promises of the coordinator are checked, whatever the machines' wall clocks do: a member heard within its session is
not removed, and a silent one is out of the group when its session has ended.
"""

from collections.abc import MutableMapping
from typing import Any

from logyard.broker.errors import ErrorCode
from logyard.broker.groups.members import GroupState
from logyard.broker.replication.ports import LinkError
from tests.simulation.clients import TROUBLE, Client
from tests.simulation.cluster import Cluster
from tests.simulation.ledger import BrokenPromise

FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 10, 11, 12, 14
GROUP = "team"
SESSION_MS = 4000
REBALANCE_MS = 2000
HEARTBEAT_S = 0.5
SILENT_CHANCE = 0.03
SILENT_S = (2 * SESSION_MS / 1000, 4 * SESSION_MS / 1000)
SIZE = 3

ROUNDING_S = 0.001  # sessions are counted in whole milliseconds
_EXPIRED = " sent no heartbeat in time"


class Member(Client):
    """`member_id` is "" while it is in no group, and while it is silent."""

    def __init__(self, name: str, cluster: Cluster, seed: str) -> None:
        super().__init__(name, cluster, seed)
        self.member_id = ""
        self.calm = False
        # When the last request was sent that a broker has answered: by the broker's name and the member's id.
        self.heard: dict[tuple[str, str], float] = {}
        self._generation = -1
        self._coordinator: tuple[str, int] | None = None

    def start(self) -> None:
        self.process.spawn(self._run())

    async def _run(self) -> None:
        while True:
            try:
                await self._join()
                while await self._beat():
                    await self._maybe_silent()
                    await self.rest(HEARTBEAT_S)
            except TROUBLE as trouble:
                self.trace.count(f"member: {type(trouble).__name__}")
                self._coordinator = None
            await self.rest(0.2)

    async def _maybe_silent(self) -> None:
        if self.calm or self.chance.random() >= SILENT_CHANCE:
            return
        self.trace.event(f"{self.name} falls silent, it was {self.member_id}")
        self.trace.count("member: silent")
        self.member_id = ""
        await self.rest(self.chance.uniform(*SILENT_S))
        await self._join()

    async def _ask(self, api: int, version: int, fields: dict[str, Any]) -> Any:
        """Ask the coordinator; raises LinkError."""
        if self._coordinator is None:
            found = await self.link(self.chance.choice(self.cluster.addresses)).request(
                FIND_COORDINATOR, 3, {"key": GROUP, "key_type": 0}
            )
            if found.error_code:
                raise LinkError("no coordinator")
            self._coordinator = (found.host, found.port)
        own = {"group_id": GROUP, "member_id": self.member_id, "group_instance_id": None}
        return await self.link(self._coordinator).request(api, version, own | fields)

    def _known(self, code: ErrorCode) -> bool:
        """Whether the group knows us. Raises LinkError where somebody else is to be asked, or later."""
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.member_id = ""
            return False
        retried = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.MEMBER_ID_REQUIRED)
        if code is not ErrorCode.NONE and code not in retried:
            raise LinkError(code.name)
        return True

    async def _join(self) -> None:
        while True:
            joined = await self._ask(
                JOIN_GROUP,
                7,
                {
                    "session_timeout_ms": SESSION_MS,
                    "rebalance_timeout_ms": REBALANCE_MS,
                    "protocol_type": "consumer",
                    "protocols": [{"name": "range", "metadata": b"m"}],
                },
            )
            code = self.count("join", joined.error_code)
            if self._known(code) and code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
                self.member_id, self._generation = joined.member_id, joined.generation_id
            if code is ErrorCode.NONE and await self._sync(joined):
                return
            await self.rest(0.05)

    async def _sync(self, joined: Any) -> bool:
        given = [{"member_id": member.member_id, "assignment": b"all"} for member in joined.members]
        names = {"protocol_type": "consumer", "protocol_name": "range"}
        fields = {"generation_id": self._generation, "assignments": given, **names}
        code = self.count("sync", (await self._ask(SYNC_GROUP, 5, fields)).error_code)
        return self._known(code) and code is ErrorCode.NONE

    async def _beat(self) -> bool:
        """Whether we go on as we are."""
        sent, member_id = self.cluster.loop.now, self.member_id
        answer = await self._ask(HEARTBEAT, 4, {"generation_id": self._generation})
        code = self.count("heartbeat", answer.error_code)
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS) and self._coordinator is not None:
            self.heard = {(self._coordinator[0], member_id): sent}
        return self._known(code) and code is ErrorCode.NONE


class Team:
    """All members, and what is promised to them."""

    def __init__(self, cluster: Cluster, seed: str) -> None:
        self._cluster = cluster
        self.members = [Member(f"member{n}", cluster, seed) for n in range(SIZE)]
        self.broken = ""
        cluster.trace.listeners.append(self._said)

    def _said(self, who: str, what: str, event: MutableMapping[str, Any]) -> None:
        note = str(event.get("note", ""))
        if what != "group" or event.get("group") != GROUP or not note.endswith(_EXPIRED):
            return
        self._cluster.trace.count("member expired")
        member_id = note.removesuffix(_EXPIRED)
        for member in self.members:
            sent = member.heard.get((who, member_id))
            if sent is not None and self._cluster.loop.now < sent + SESSION_MS / 1000 - ROUNDING_S:
                ago = self._cluster.loop.now - sent
                self.broken = f"{who} threw {member_id} out for silence: it had answered it {ago:.2f} s ago"

    def check(self) -> None:
        if self.broken:
            raise BrokenPromise(self.broken)

    def calm(self, calm: bool) -> None:
        """Calm members do not fall silent."""
        for member in self.members:
            member.calm = calm

    def unrest(self) -> str:
        """Why the group is not what it should be when nothing is broken; "" where it is."""
        alive = {member.member_id for member in self.members}
        for machine in self._cluster.serving():
            components = machine.components
            group = components.coordinators.groups.roster.get(GROUP) if components is not None else None
            if (
                group is None
                or components is None
                or components.coordinators.groups.availability(GROUP) is not ErrorCode.NONE
            ):
                continue
            if group.state is GroupState.STABLE and set(group.members) == alive:
                return ""
            return f"{machine} has {group.state.value} members {sorted(group.members)}, alive are {sorted(alive)}"
        return "nobody coordinates the team"
