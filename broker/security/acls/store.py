"""The ACLs in ZooKeeper: loads them, reads again what has changed, and changes them (facts §18.4).

Rule 1: a write is conditional on the version that was read; it is tried again when others wrote meanwhile.
Rule 2: a change is answered when this broker obeys it; its notification is written together with it.
Rule 3: a znode that cannot be parsed, or that ZooKeeper does not let us read, fails the first load; later its pattern
        keeps the ACLs that are known, and the others are read all the same. One that we may not read is among `unread`.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from logyard.broker.errors import ApiError, CorruptData, ErrorCode, LogyardError
from logyard.broker.security.acls.filters import AclFilter, Takers
from logyard.broker.security.acls.rules import Acls
from logyard.broker.znodes import acls, paths
from logyard.broker.znodes.acls import AclEntry, PatternType, ResourcePattern
from logyard.broker.znodes.content import check_size
from logyard.broker.znodes.ops import Create, Delete, SessionExpired, SetData, ZkCode, ZkOp, Znode, ZooKeeper
from logyard.broker.znodes.reading import read_each

TRIES = 11
PAUSE_S, JITTER_S = 0.1, 0.05
UNKNOWN_VERSION = -2
# How many patterns are taken over in one turn of the event loop, and how much they may have: a client chooses how many
# entries each has.
PATTERNS_PER_TURN = 200
BYTES_PER_TURN = 64 * 1024
# How often a filter is compared in one turn: patterns times filters may be many.
LOOKS_PER_TURN = 5000
# How many entries of a pattern are encoded in one turn.
ENTRIES_PER_TURN = 1000
# To write again helps after others have written, but not after these.
REFUSED = (ZkCode.NO_AUTH, ZkCode.INVALID_ACL, ZkCode.FAILED)

Binding = tuple[ResourcePattern, AclEntry]
Change = Callable[[frozenset[AclEntry]], frozenset[AclEntry]]


class AclStore:
    """Keeps `known` as ZooKeeper has them. `note` gets a line for each znode that cannot be parsed.

    `below` gives a random number below a bound, for the pauses between tries.
    """

    def __init__(self, zk: ZooKeeper, known: Acls, note: Callable[[str], None], below: Callable[[int], int]) -> None:
        self._zk = zk
        self.known = known
        self._note = note
        self._below = below
        self.unread: dict[ResourcePattern, None] = {}
        self._versions: dict[ResourcePattern, int] = {}
        self._loaded = False
        # One change or reading at a time: none overwrites what a later one has found.
        self._turn = asyncio.Lock()

    async def create_paths(self) -> None:
        """Create the znodes that all ACLs are below, where they are missing. Raises SessionExpired."""
        wanted: dict[str, None] = {}
        for path in acls.PERSISTENT:
            wanted.update(dict.fromkeys([*paths.ancestors(path), path]))
        await self._zk.pipeline([[Create(path)] for path in wanted])

    async def load(self) -> None:
        """Read all ACLs. The first time a znode that cannot be parsed or read raises CorruptData or LogyardError."""
        async with self._turn:
            folders = [(k, t) for k in (PatternType.LITERAL, PatternType.PREFIXED) for t in acls.RESOURCE_TYPES]
            children = await self._zk.children([acls.type_path(kind, each) for kind, each in folders])
            found = {
                ResourcePattern(each, name, kind): None
                for (kind, each), names in zip(folders, children, strict=True)
                for name in names or ()
            }
            gone = [pattern for pattern in self.known.patterns() if pattern not in found]
            await self._read([*found, *gone])
            self._loaded = True

    async def read_again(self, patterns: Iterable[ResourcePattern]) -> None:
        """Read these patterns' ACLs. Raises SessionExpired."""
        async with self._turn:
            await self._read(list(dict.fromkeys(patterns)))

    async def _read(self, patterns: Sequence[ResourcePattern]) -> None:
        znodes = await read_each(self._zk, [acls.path(pattern) for pattern in patterns])
        taken = size = 0
        for pattern, znode in zip(patterns, znodes, strict=True):
            is_refused, was_refused = isinstance(znode, LogyardError), pattern in self.unread
            self.unread.pop(pattern, None)
            try:
                self._take(pattern, znode)
            except LogyardError as problem:
                if not self._loaded:
                    raise
                if is_refused:
                    self.unread[pattern] = None
                if not (is_refused and was_refused):
                    self._note(f"the ACLs of {pattern.kind} {pattern.type} {pattern.name} stay as they were: {problem}")
            taken, size = taken + 1, size + (len(znode.data) if isinstance(znode, Znode) else 0)
            if taken >= PATTERNS_PER_TURN or size >= BYTES_PER_TURN:
                taken = size = 0
                await asyncio.sleep(0)

    def _take(self, pattern: ResourcePattern, znode: Znode | LogyardError | None) -> None:
        if isinstance(znode, LogyardError):
            raise znode
        self._keep(pattern, _entries(pattern, znode), UNKNOWN_VERSION if znode is None else znode.version)

    def _keep(self, pattern: ResourcePattern, entries: frozenset[AclEntry], version: int) -> None:
        self.known.put(pattern, entries)
        if entries:
            self._versions[pattern] = version
        else:
            self._versions.pop(pattern, None)

    # -- changes

    async def create(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> None:
        """Add entries to a pattern. Raises ApiError: UNKNOWN_SERVER_ERROR (others wrote each time), INVALID_REQUEST
        (ZooKeeper would not take so many)."""
        added = frozenset(entries)
        async with self._turn:
            await self._change(pattern, lambda present: present | added)

    async def delete(self, filters: Sequence[AclFilter]) -> list[dict[Binding, ApiError | None]]:
        """Delete what the filters match, and return it by filter, with the error where it could not be deleted.

        What several filters match counts for the first of them. A filter that names its patterns deletes what ZooKeeper
        has, others what this broker knows.
        """
        named: dict[ResourcePattern, list[int]] = {}
        others: list[int] = []
        looks = _Looks()
        for number, each in enumerate(filters):
            await looks.more()
            patterns = each.named()
            for pattern in patterns:
                named.setdefault(pattern, []).append(number)
            if not patterns:
                others.append(number)
        deleted: list[dict[Binding, ApiError | None]] = [{} for _ in filters]
        for pattern in dict.fromkeys([*self.known.patterns(), *named]):
            takers = Takers()
            for number in named.get(pattern, ()):
                await looks.more()
                takers.add(number, filters[number])
            for number in others:
                await looks.more()
                if filters[number].takes_pattern(pattern):
                    takers.add(number, filters[number])
            # Others change, and read what has changed, between two patterns: a client chooses how many there are.
            if takers:
                async with self._turn:
                    await self._delete(pattern, takers, deleted, is_named=pattern in named)
                await looks.more(len(self.known.entries(pattern)))
        return deleted

    async def _delete(
        self,
        pattern: ResourcePattern,
        takers: Takers,
        deleted: list[dict[Binding, ApiError | None]],
        *,
        is_named: bool,
    ) -> None:
        taken: dict[AclEntry, int] = {}

        def remove(present: frozenset[AclEntry]) -> frozenset[AclEntry]:
            taken.clear()
            for entry in present:
                first = takers.first(entry)
                if first is not None:
                    taken[entry] = first
            return present - taken.keys()

        known = self.known.entries(pattern)
        if not is_named and remove(known) == known:
            return
        problem = None
        try:
            await self._change(pattern, remove)
        except ApiError as refusal:
            problem = refusal
        for entry, first in taken.items():
            deleted[first][pattern, entry] = problem

    async def _change(self, pattern: ResourcePattern, change: Change) -> None:
        """Write a pattern's changed entries. Raises ApiError: UNKNOWN_SERVER_ERROR (or the znode cannot be parsed or
        read)."""
        if pattern in self._versions:
            before, version = self.known.entries(pattern), self._versions[pattern]
        else:
            before, version = await self._present(pattern)
        for _ in range(TRIES):
            after = change(before)
            written = await self._write(pattern, after, version, has_changed=after != before, grows=not after <= before)
            if written is not None:
                self._keep(pattern, after, written)
                return
            await asyncio.sleep(PAUSE_S + JITTER_S * self._below(1000) / 1000)
            before, version = await self._present(pattern)
        raise ApiError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the ACLs of {pattern.type} {pattern.name} could not be written, as others wrote each time: try again",
        )

    async def _present(self, pattern: ResourcePattern) -> tuple[frozenset[AclEntry], int]:
        try:
            (znode,) = await self._zk.read([acls.path(pattern)])
            return _entries(pattern, znode), UNKNOWN_VERSION if znode is None else znode.version
        except SessionExpired:
            raise
        except CorruptData as problem:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{problem}: mend it before changing it") from problem
        except LogyardError as problem:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(problem)) from problem

    async def _write(
        self, pattern: ResourcePattern, entries: frozenset[AclEntry], version: int, *, has_changed: bool, grows: bool
    ) -> int | None:
        """Write on condition of the version, and notify. Returns the version written, None if it was another one.

        What `grows` may not become longer than ZooKeeper takes.
        """
        path = acls.path(pattern)
        # They are sorted, and a client chooses how many there are.
        many = len(entries) > ENTRIES_PER_TURN
        content = await asyncio.to_thread(acls.encode, entries) if many else acls.encode(entries)
        if grows:
            check_size("the ACLs of a resource", content, ErrorCode.INVALID_REQUEST)
        write: ZkOp
        if not entries:
            if version == UNKNOWN_VERSION:
                return UNKNOWN_VERSION
            write = Delete(path, version)
        elif version == UNKNOWN_VERSION:
            write = Create(path, content)
        else:
            write = SetData(path, content, version)
        where, what = acls.notification(pattern)
        notice = [Create(where, what, sequential=True)] if has_changed else []
        # Together: a broker that dies here must not leave a change that nobody is told of.
        results = await self._zk.multi([write, *notice])
        result = results[0]
        if result.ok:
            return 0 if isinstance(write, Create) else result.version
        if any(each.code in REFUSED for each in results):
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper refuses to write {path}: see its rights")
        if any(each.code is ZkCode.NO_NODE for each in results):
            await self.create_paths()
        return None


class _Looks:
    """Gives others a turn after each LOOKS_PER_TURN comparisons."""

    def __init__(self) -> None:
        self._made = 0

    async def more(self, made: int = 1) -> None:
        self._made += made
        if self._made > LOOKS_PER_TURN:
            self._made = 0
            await asyncio.sleep(0)


def _entries(pattern: ResourcePattern, znode: Znode | None) -> frozenset[AclEntry]:
    return frozenset() if znode is None else acls.decode(znode.data, acls.path(pattern))
