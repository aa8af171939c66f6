"""ACLs in ZooKeeper: conditional changes, notifications of both kinds, loading, bad znodes, purging (facts §18.4)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from logyard.broker.clock import ManualClock
from logyard.broker.errors import ApiError, CorruptData, ErrorCode
from logyard.broker.security.acls import store as store_module
from logyard.broker.security.acls.filters import AclFilter
from logyard.broker.security.acls.rules import Subject
from logyard.broker.zk.memory import MemoryZooKeeper
from logyard.broker.zk.tree import ZooKeeperTree
from logyard.broker.znodes import acls
from logyard.broker.znodes.acls import AclEntry, Operation, PatternType, Permission, ResourcePattern, ResourceType
from logyard.broker.znodes.ops import Create, Delete, SetData
from tests.support.acl_broker import AclBroker
from tests.support.longest_turn import longest_turn

T = ResourceType.TOPIC
LITERAL, PREFIXED = ResourcePattern(T, "t"), ResourcePattern(T, "pre", PatternType.PREFIXED)
READ, WRITE = (AclEntry("User:a", Permission.ALLOW, each) for each in (Operation.READ, Operation.WRITE))
EVERYTHING = AclFilter(ResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)


Broker = AclBroker[MemoryZooKeeper]


class World:
    def __init__(self) -> None:
        self.clock = ManualClock(5_000)
        self.tree = ZooKeeperTree(self.clock)
        self.brokers: list[Broker] = []

    async def broker(self) -> Broker:
        made = Broker(MemoryZooKeeper(self.tree))
        self.brokers.append(made)
        await made.watcher.start()
        return made


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(store_module, "PAUSE_S", 0.0)
    made = World()
    yield made
    for broker in made.brokers:
        await broker.watcher.stop()


@pytest.mark.parametrize("pattern", [LITERAL, PREFIXED, ResourcePattern(ResourceType.TRANSACTIONAL_ID, "a:b")])
async def test_what_one_broker_changes_the_others_obey(world: World, pattern: ResourcePattern) -> None:
    one, two = await world.broker(), await world.broker()
    await one.store.create(pattern, [READ])
    assert one.known.entries(pattern) == {READ}  # before the others are
    await two.obeys(pattern, READ)
    await two.store.create(pattern, [WRITE])
    await one.obeys(pattern, READ, WRITE)
    only_read = EVERYTHING._replace(operation=Operation.READ)
    assert await one.store.delete([only_read]) == [{(pattern, READ): None}]
    await two.obeys(pattern, WRITE)
    assert await two.store.delete([EVERYTHING]) == [{(pattern, WRITE): None}]
    await one.obeys(pattern)
    (znode,) = await one.zk.read([acls.path(pattern)])
    assert znode is None
    assert one.notes == two.notes == []


async def test_the_znodes_are_kafka_s(world: World) -> None:
    one = await world.broker()
    await one.store.create(LITERAL, [AclEntry("User:a", Permission.DENY, Operation.DESCRIBE_CONFIGS, "1.2.3.4")])
    await one.store.create(PREFIXED, [READ])
    transactional = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "x")
    await one.store.create(transactional, [WRITE])
    expected = {
        "/kafka-acl/Topic/t": b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Deny",'
        b'"operation":"DescribeConfigs","host":"1.2.3.4"}]}',
        "/kafka-acl-changes/acl_changes_0000000000": b"TOPIC:t",
        "/kafka-acl-changes/acl_changes_0000000001": b"TRANSACTIONAL_ID:x",
        "/kafka-acl-extended-changes/acl_changes_0000000000": b'{"version":1,"resourceType":"TOPIC","name":"pre",'
        b'"patternType":"PREFIXED"}',
    }
    found = await one.zk.read([*expected, "/kafka-acl-extended/prefixed/Topic/pre"])
    assert {path: z.data for path, z in zip(expected, found, strict=False) if z is not None} == expected
    assert found[-1] is not None
    for root in ("/kafka-acl", "/kafka-acl-extended/prefixed"):
        (names,) = await one.zk.children([root])
        assert names == ["Cluster", "DelegationToken", "Group", "Topic", "TransactionalId", "User"]


async def test_two_who_write_at_the_same_time_lose_nothing(world: World) -> None:
    one, two = await world.broker(), await world.broker()
    added = [AclEntry(f"User:{n}", Permission.ALLOW, Operation.READ) for n in range(12)]
    await asyncio.gather(*((one, two)[n % 2].store.create(LITERAL, [entry]) for n, entry in enumerate(added)))
    (znode,) = await one.zk.read([acls.path(LITERAL)])
    assert znode is not None
    assert acls.decode(znode.data) == set(added)
    await one.obeys(LITERAL, *added)
    await two.obeys(LITERAL, *added)


async def test_many_at_once_leave_what_they_should(world: World) -> None:
    """Both brokers add fifty users at once, each tenth is removed again; then one comes and goes fifty times."""
    one, two = await world.broker(), await world.broker()
    users = [AclEntry(f"User:{number}", Permission.ALLOW, Operation.READ) for number in range(50)]

    async def change(number: int) -> None:
        await (one, two)[number % 2].store.create(LITERAL, [users[number]])
        await (two, one)[number % 2].store.create(LITERAL, [users[number]])
        if number % 10 == 0:
            await two.store.delete([named(LITERAL)._replace(principal=users[number].principal)])

    await asyncio.gather(*map(change, range(50)))
    for broker in (one, two):
        await broker.obeys(LITERAL, *(user for number, user in enumerate(users) if number % 10))
    await one.store.delete([EVERYTHING])
    for _ in range(50):
        await one.store.create(LITERAL, [READ])
        await two.store.delete([named(LITERAL)])
    for broker in (one, two):
        await broker.obeys(LITERAL)
    assert await one.zk.read([acls.path(LITERAL)]) == [None]


PATTERNS = [LITERAL, ResourcePattern(T, "*"), PREFIXED]


def named(pattern: ResourcePattern) -> AclFilter:
    return EVERYTHING._replace(type=pattern.type, name=pattern.name, kind=pattern.kind)


@pytest.mark.parametrize("pattern", PATTERNS)
async def test_acls_are_added_to_those_of_one_pattern(world: World, pattern: ResourcePattern) -> None:
    one = await world.broker()
    denied = AclEntry("User:a", Permission.DENY, Operation.READ)
    await one.store.create(pattern, [READ, WRITE])
    await one.store.create(pattern, [WRITE, denied])
    assert {each: one.known.entries(each) for each in PATTERNS} == {
        each: {READ, WRITE, denied} if each == pattern else frozenset() for each in PATTERNS
    }
    allowed = named(pattern)._replace(operation=Operation.READ, permission=Permission.ALLOW)
    assert await one.store.delete([allowed]) == [{(pattern, READ): None}]
    assert one.known.entries(pattern) == {WRITE, denied}
    assert await one.store.delete([named(pattern)]) == [{(pattern, WRITE): None, (pattern, denied): None}]
    assert len(one.known) == 0


async def test_acls_of_a_principal_are_not_those_of_everybody(world: World) -> None:
    one = await world.broker()
    for entry, other in ((READ, "User:*"), (READ._replace(principal="User:*"), "User:a")):
        await one.store.create(LITERAL, [entry])
        assert await one.store.delete([EVERYTHING._replace(principal=other)]) == [{}]
        assert await one.store.delete([EVERYTHING._replace(principal=entry.principal)]) == [{(LITERAL, entry): None}]


async def test_what_is_changed_while_a_broker_starts_is_not_missed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it comes before or after the znodes were read: the watches are set first."""
    one = await world.broker()
    late = Broker(MemoryZooKeeper(world.tree))
    world.brokers.append(late)
    read, reads = late.zk.read, 0

    async def slow(paths: Any) -> Any:
        nonlocal reads
        reads += 1
        found = await read(paths)
        await one.store.create(LITERAL, [AclEntry(f"User:{reads}", Permission.DENY, Operation.READ)])
        return found

    await one.store.create(LITERAL, [READ])
    monkeypatch.setattr(late.zk, "read", slow)
    await late.watcher.start()
    monkeypatch.setattr(late.zk, "read", read)
    assert reads
    await late.obeys(LITERAL, *one.known.entries(LITERAL))


async def test_who_always_loses_gives_up(world: World) -> None:
    one = await world.broker()
    await one.store.create(LITERAL, [READ])
    multi, path = one.zk.multi, acls.path(LITERAL)
    tries = 0

    async def meanwhile(ops: Any) -> Any:
        nonlocal tries
        if isinstance(ops[0], SetData):
            tries += 1
            await multi([SetData(path, acls.encode([READ, AclEntry(f"User:{tries}", *READ[1:])]))])
        return await multi(ops)

    one.zk.multi = meanwhile  # type: ignore[method-assign]
    with pytest.raises(ApiError) as refusal:
        await one.store.create(LITERAL, [WRITE])
    assert (refusal.value.code, tries) == (ErrorCode.UNKNOWN_SERVER_ERROR, 11)


@pytest.mark.parametrize("pattern", [LITERAL, PREFIXED, ResourcePattern(T, "*")])
@pytest.mark.parametrize("any_kind", [False, True])
async def test_a_filter_with_a_name_deletes_what_this_broker_has_not_seen(
    world: World, pattern: ResourcePattern, any_kind: bool
) -> None:
    one = await world.broker()
    await one.zk.multi([Create(acls.path(pattern), acls.encode([READ]))])  # and nobody is told
    kind = PatternType.ANY if any_kind else pattern.kind
    named = EVERYTHING._replace(type=T, name=pattern.name, kind=kind)
    assert await one.store.delete([EVERYTHING]) == [{}]
    assert await one.store.delete([named._replace(kind=PatternType.MATCH)]) == [{}]
    assert await one.store.delete([EVERYTHING, named]) == [{(pattern, READ): None}, {}]
    assert await one.zk.read([acls.path(pattern)]) == [None]


async def test_what_two_filters_match_counts_for_the_first(world: World) -> None:
    one = await world.broker()
    await one.store.create(LITERAL, [READ, WRITE])
    reads = EVERYTHING._replace(operation=Operation.READ)
    assert await one.store.delete([reads, EVERYTHING]) == [{(LITERAL, READ): None}, {(LITERAL, WRITE): None}]


async def test_many_filters_over_many_acls_hold_nobody_up(world: World) -> None:
    broker = await world.broker()
    for number in range(5_000):
        broker.known.put(ResourcePattern(T, f"t{number}"), [READ])
    filters = [EVERYTHING._replace(name=f"x{n}", kind=PatternType.MATCH, type=T) for n in range(400)]
    async with longest_turn() as longest:
        assert await broker.store.delete(filters) == [{}] * 400
    assert longest.seconds < 0.5


async def test_many_filters_that_name_their_patterns_are_not_compared_with_each(world: World) -> None:
    """Each with each, this takes minutes, while no other change is obeyed."""
    broker = await world.broker()
    await broker.store.create(LITERAL, [READ, WRITE])
    others = [named(ResourcePattern(T, f"no-{number}")) for number in range(10_000)]
    hosts = [named(LITERAL)._replace(host=f"h{number}") for number in range(10_000)]
    async with asyncio.timeout(60), longest_turn() as longest:
        deleting = asyncio.ensure_future(broker.store.delete([*others, *hosts, named(LITERAL), *others]))
        await broker.store.create(PREFIXED, [READ])
        assert not deleting.done()
        deleted = await deleting
    assert [len(each) for each in deleted] == [0] * 20_000 + [2] + [0] * 10_000
    assert longest.seconds < 0.5


async def test_many_entries_of_one_pattern_are_encoded_in_a_thread(world: World) -> None:
    broker = await world.broker()
    entries = [READ._replace(principal=f"User:{number}") for number in range(2000)]
    await broker.store.create(LITERAL, entries)
    assert broker.known.entries(LITERAL) == frozenset(entries)


async def test_a_bad_znode_fails_the_first_load_and_is_named(world: World) -> None:
    one = await world.broker()
    for data in (b"{", b'{"version":2,"acls":[]}', b'{"version":1,"acls":[{"principal":"a"}]}'):
        await one.zk.multi([Create("/kafka-acl/Topic/bad", data)])
        with pytest.raises(CorruptData, match="/kafka-acl/Topic/bad"):
            await world.broker()
        await one.zk.multi([Delete("/kafka-acl/Topic/bad")])
    await one.zk.multi([Create("/kafka-acl/Topic/bad", b"")])  # no ACLs
    assert len((await world.broker()).known) == 0


async def test_later_a_bad_znode_leaves_what_is_known(world: World) -> None:
    one, two = await world.broker(), await world.broker()
    await one.store.create(LITERAL, [READ])
    await two.obeys(LITERAL, READ)
    await one.zk.multi([SetData(acls.path(LITERAL), b"{")])
    await one.zk.multi([Create("/kafka-acl-changes/acl_changes_", b"TOPIC:t", sequential=True)])
    await one.zk.multi([Create("/kafka-acl-changes/acl_changes_", b"Topic:t", sequential=True)])
    await one.store.create(PREFIXED, [WRITE])
    await two.obeys(PREFIXED, WRITE)
    assert two.known.entries(LITERAL) == {READ}
    async with asyncio.timeout(5):
        while len(two.notes) < 2:
            await asyncio.sleep(0.001)
    assert any("/kafka-acl/Topic/t" in note for note in two.notes)
    assert any("acl_changes_" in note for note in two.notes)
    with pytest.raises(ApiError, match="mend it"):
        await Broker(MemoryZooKeeper(world.tree)).store.create(LITERAL, [WRITE])
    await two.watcher.start()  # a new session, in which the znode is as bad as before
    assert two.known.entries(LITERAL) == {READ}


async def test_a_new_session_loads_all_again(world: World) -> None:
    one = await world.broker()
    await one.store.create(LITERAL, [READ])
    await one.watcher.stop()
    other = MemoryZooKeeper(world.tree)
    await other.multi([Delete(acls.path(LITERAL))])
    await other.multi([Create(acls.path(PREFIXED), acls.encode([WRITE]))])
    await one.watcher.start()
    assert (one.known.entries(LITERAL), one.known.entries(PREFIXED)) == (frozenset(), {WRITE})
    assert one.known.decide(Subject("User:a", "::1"), Operation.WRITE, T, "prefixed")


async def test_old_notifications_are_purged_by_zookeeper_s_clock(world: World) -> None:
    one = await world.broker()
    await one.store.create(LITERAL, [READ])
    await one.store.create(PREFIXED, [READ])
    world.clock.advance(acls.EXPIRATION_MS + 1)
    await one.store.create(LITERAL, [WRITE])
    async with asyncio.timeout(5):
        while True:
            left = await one.zk.children([acls.LITERAL_CHANGES, acls.EXTENDED_CHANGES])
            if left == [["acl_changes_0000000001"], []]:
                break
            await asyncio.sleep(0.001)


async def test_names_and_codes_round_trip() -> None:
    for pattern in (LITERAL, PREFIXED, ResourcePattern(ResourceType.USER, "User:x:y"), ResourcePattern(T, "*")):
        path, data = acls.notification(pattern)
        assert acls.decode_notification(data, f"{path}0000000000") == pattern
    odd = b'{"version":1,"acls":[{"principal":"User:a","permissionType":"ALLOW","operation":"Fly","host":"*"}]}'
    assert acls.decode(odd) == {AclEntry("User:a", Permission.ALLOW, Operation.UNKNOWN, "*")}
    for bad in (b"TOPIC", b"TOPIC:", b"Topic:t", b"\xff"):
        with pytest.raises(CorruptData):
            acls.decode_notification(bad, "/kafka-acl-changes/acl_changes_0000000000")


async def test_more_than_zookeeper_takes_is_refused_before_it_is_sent(world: World) -> None:
    """It closes the broker's connection on a request above its jute.maxbuffer."""
    broker = await world.broker()
    long = [AclEntry(f"User:{number}{'a' * 30_000}", Permission.ALLOW, Operation.READ) for number in range(40)]
    await broker.store.create(LITERAL, long[:20])
    with pytest.raises(ApiError, match="900000") as refused:
        await broker.store.create(LITERAL, long[20:])
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    await broker.obeys(LITERAL, *long[:20])
    # What is there may become less, whatever it is: a server may take more than most do.
    await broker.zk.multi([Create(acls.path(PREFIXED), acls.encode(frozenset(long)))])
    await broker.store.load()
    (taken,) = await broker.store.delete([EVERYTHING._replace(principal=long[0].principal)])
    assert taken == {(LITERAL, long[0]): None, (PREFIXED, long[0]): None}
    await broker.obeys(PREFIXED, *long[1:])


async def test_a_new_session_reads_patterns_of_many_entries_in_turns(world: World) -> None:
    """Of 200 patterns with a thousand entries each, which a client may make, one turn took 0.5 s."""
    entries = frozenset(AclEntry(f"User:service-{number}", Permission.ALLOW, Operation.READ) for number in range(1000))
    broker = await world.broker()
    patterns = [ResourcePattern(T, f"t{number}") for number in range(100)]
    for pattern in patterns:
        await broker.zk.multi([Create(acls.path(pattern), acls.encode(entries))])
    async with longest_turn() as longest:
        await broker.store.load()
    assert {broker.known.entries(pattern) for pattern in patterns} == {entries}
    assert longest.seconds < 0.09
