"""CreateAcls, DescribeAcls and DeleteAcls over sockets: filters, and every odd case of facts §18.4."""

import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from logyard.broker.protocol import codec
from logyard.broker.znodes.acls import Operation, ResourceType
from tests.support.longest_turn import frame_of, least_answer, longest_turn
from tests.support.principals import Acl, Client, Secured, acl
from tests.support.sasl_client import SaslClient

DESCRIBE_ACLS, CREATE_ACLS = 29, 30


@pytest.fixture
async def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Secured]:
    async with Secured(tmp_path, monkeypatch) as made:
        yield made


def created(**changes: Any) -> dict[str, Any]:
    whole = {
        "resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:x", "host": "*",
        "operation": 3, "permission_type": 3,
    }  # fmt: skip
    return whole | changes


def wanted(**changes: Any) -> dict[str, Any]:
    whole = {
        "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
        "host_filter": None, "operation": 1, "permission_type": 1,
    }  # fmt: skip
    return whole | changes


async def described(client: Client, version: int | None = None, **changes: Any) -> list[tuple[str, int, str, int]]:
    answer = await client.ask("DescribeAcls", version, **wanted(**changes))
    assert answer.error_code == 0
    return sorted(
        (r.resource_name, r.pattern_type, entry.principal, entry.operation)
        for r in answer.resources
        for entry in r.acls
    )


async def test_acls_are_created_described_and_deleted(broker: Secured) -> None:
    root = await broker.client("User:root")
    acls = [created(), created(resource_name="*", operation=4), created(resource_pattern_type=4, principal="User:y")]
    answer = await root.ask("CreateAcls", creations=acls)
    assert [result.error_code for result in answer.results] == [0, 0, 0]
    literal, everything, prefixed = ("t", 3, "User:x", 3), ("*", 3, "User:x", 4), ("t", 4, "User:y", 3)
    assert await described(root) == sorted([literal, everything, prefixed])
    assert await described(root, resource_name_filter="t") == [literal, prefixed]
    assert await described(root, resource_name_filter="t", pattern_type_filter=3) == [literal]
    assert await described(root, resource_name_filter="tx", pattern_type_filter=2) == sorted([everything, prefixed])
    assert await described(root, 0, resource_name_filter="t") == [literal]  # v0: literal patterns only
    assert await described(root, operation=99) == []
    filters = [wanted(operation=4), wanted(), wanted(resource_type_filter=99)]
    answer = await root.ask("DeleteAcls", filters=filters)
    deleted = [[(m.resource_name, m.pattern_type) for m in each.matching_acls] for each in answer.filter_results]
    assert (deleted[0], sorted(deleted[1]), deleted[2]) == ([("*", 3)], [("t", 3), ("t", 4)], [])
    assert await described(root) == []


async def test_the_same_acl_twice_is_one(broker: Secured) -> None:
    root = await broker.client("User:root")
    answer = await root.ask("CreateAcls", creations=[created(), created(), created(resource_type=5)])
    assert [result.error_code for result in answer.results] == [0, 0, 0]
    assert await described(root, resource_type_filter=2) == [("t", 3, "User:x", 3)]
    kinds = [wanted(resource_type_filter=kind, pattern_type_filter=3) for kind in (3, 2, 5)]
    deleted = (await root.ask("DeleteAcls", filters=kinds)).filter_results
    assert [[match.resource_type for match in each.matching_acls] for each in deleted] == [[], [2], [5]]


async def test_who_deletes_by_the_old_version_leaves_prefixes(broker: Secured) -> None:
    root = await broker.client("User:root")
    acls = [created(), created(resource_name="*"), created(resource_name="tx"), created(resource_pattern_type=4)]
    await root.ask("CreateAcls", creations=acls)
    by_name = [wanted(resource_type_filter=2, resource_name_filter=name) for name in ("t", "*")]
    deleted = (await root.ask("DeleteAcls", 0, filters=[*by_name, wanted(resource_type_filter=2)])).filter_results
    assert [[match.resource_name for match in each.matching_acls] for each in deleted] == [["t"], ["*"], ["tx"]]
    assert await described(root, 0) == []
    assert await described(root) == [("t", 4, "User:x", 3)]


async def test_acls_are_seen_with_describe_and_changed_with_alter(broker: Secured) -> None:
    """Each step of allows and denies on the cluster; Alter allows Describe, and its deny does not deny that."""
    a = await broker.client("User:a")

    def on_cluster(operation: Operation, allows: bool = True) -> Acl:
        return acl("User:a", operation, ResourceType.CLUSTER, "kafka-cluster", allows=allows)

    alter, describe = on_cluster(Operation.ALTER), on_cluster(Operation.DESCRIBE)
    no_alter, no_describe = on_cluster(Operation.ALTER, allows=False), on_cluster(Operation.DESCRIBE, allows=False)
    for given, sees, changes in (
        ([alter], 0, 0),
        ([alter, no_alter], 0, 31),
        ([alter, no_alter, no_describe], 31, 31),
        ([on_cluster(Operation.CREATE)], 31, 31),
        ([describe], 0, 31),
    ):
        broker.put(*given)
        assert (await a.ask("DescribeAcls", **wanted())).error_code == sees
        (made,) = (await a.ask("CreateAcls", creations=[created()])).results
        (gone,) = (await a.ask("DeleteAcls", filters=[wanted(principal_filter="User:x")])).filter_results
        assert (made.error_code, gone.error_code) == (changes, changes)


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({"resource_type": 4}, [42, 0]),
        ({"resource_name": ""}, [42, 0]),
        ({"resource_name": "a/b"}, [42, 0]),
        ({"resource_type": 99}, [42, 0]),
        ({"resource_pattern_type": 99}, [42, 0]),
        ({"operation": 99}, [42, 0]),
        ({"permission_type": 99}, [42, 0]),
        ({"principal": "x"}, [-1, 0]),
        ({"principal": "x", "resource_name": "good"}, [-1, -1]),
        ({"resource_pattern_type": 1}, [-1, -1]),
        ({"resource_pattern_type": 2}, [-1, -1]),
        ({"operation": 1}, [-1, -1]),
        ({"permission_type": 1}, [-1, -1]),
        ({"resource_type": 4, "resource_name": "kafka-cluster"}, [0, 0]),
        ({"resource_type": 2, "operation": 12}, [0, 0]),  # an operation that topics do not have
    ],
)
async def test_odd_acls(broker: Secured, changes: dict[str, Any], codes: list[int]) -> None:
    root = await broker.client("User:root")
    answer = await root.ask("CreateAcls", creations=[created(**changes), created(resource_name="good")])
    assert [result.error_code for result in answer.results] == codes


async def test_a_code_of_zero_closes_the_connection(broker: Secured) -> None:
    for name in ("resource_type", "resource_pattern_type", "operation", "permission_type"):
        with pytest.raises(ConnectionError):
            await (await broker.client("User:root")).ask("CreateAcls", creations=[created(**{name: 0})])
    for name in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type"):
        with pytest.raises(ConnectionError):
            await (await broker.client("User:root")).ask("DescribeAcls", **wanted(**{name: 0}))
        with pytest.raises(ConnectionError):
            await (await broker.client("User:root")).ask("DeleteAcls", filters=[wanted(**{name: 0})])


async def test_without_an_authorizer_there_are_no_acls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Secured(tmp_path, monkeypatch, authorizer_class_name="") as broker:
        client = await broker.client("User:a")
        assert (await client.ask("DescribeAcls", **wanted())).error_code == 54
        assert [r.error_code for r in (await client.ask("CreateAcls", creations=[created()])).results] == [54]
        assert [r.error_code for r in (await client.ask("DeleteAcls", filters=[wanted()])).filter_results] == [54]


async def test_prefixes_need_a_newer_protocol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Secured(tmp_path, monkeypatch, inter_broker_protocol_version="1.1") as broker:
        root = await broker.client("User:root")
        answer = await root.ask("CreateAcls", creations=[created(resource_pattern_type=4), created()])
        assert [result.error_code for result in answer.results] == [42, 0]


async def test_many_acls_that_cannot_be_are_refused_in_portions(broker: Secured) -> None:
    client = await SaslClient.connect(broker.port)
    names = [f"a/{number}" for number in range(60_000)]
    request = client.encode(CREATE_ACLS, 3, creations=[created(resource_name=name) for name in names])
    gc.disable()
    try:
        async with longest_turn() as longest:
            client.send(request)
            answer = await client.frame(60)
    finally:
        gc.enable()
    assert answer is not None
    await client.close()
    found = codec.decode_response(CREATE_ACLS, 3, memoryview(answer))[1]
    assert [result.error_code for result in found.results] == [42] * len(names)
    assert longest.seconds < 0.1  # a tenth of it; 0.3 s and more in one turn


async def test_all_acls_of_very_many_are_described_in_turns(broker: Secured) -> None:
    """A turn was 500 resources, however many entries each has."""
    broker.put(
        *(
            acl(f"User:{number}", Operation.READ, ResourceType.TOPIC, f"t{topic}")
            for topic in range(100)
            for number in range(1500)
        )
    )
    asked = frame_of(DESCRIBE_ACLS, 3, wanted())
    found, longest = await least_answer(broker, DESCRIBE_ACLS, 3, asked, 0.05)
    assert sum(len(resource.acls) for resource in found.resources) == 150_000
    assert longest < 0.05
