"""Every route of HTTP × (allowed, denied, nobody) over a real socket with TLS, against the table of docs/leases.md."""

import re
from typing import Any

import pytest
import structlog

from logyard.broker.http import rights_table
from logyard.broker.http.access import Access, everything
from logyard.broker.http.identities import OwnerOfTheFile
from logyard.broker.http.rights_table import Route
from logyard.broker.leases.book import LeaseBook
from logyard.broker.znodes.acls import Operation as Op
from tests.support.lease_world import LeaseWorld, fill
from tests.support.secured_http import ALICE, SCRAM_BOB, SecuredHttp, serving

LEASE = {"topic": "t", "partition": 0, "run_id": "run"}

# Route → what it needs on the topic t, what on the cluster, and what is sent; `{}` is the lease's id.
TOPIC_ROUTES: list[tuple[str, str, tuple[Op, ...], str, Any]] = [
    ("POST", "/leases", (Op.DESCRIBE, Op.READ), "audit", {**LEASE, "purpose": "audit"}),
    ("POST", "/leases", (Op.DESCRIBE, Op.READ), "export", {**LEASE, "purpose": "export"}),
    ("POST", "/leases", (Op.DESCRIBE, Op.READ, Op.ALTER), "compact", {**LEASE, "purpose": "compact"}),
    ("GET", "/leases/{}", (Op.DESCRIBE,), "audit", None),
    ("POST", "/leases/{}/heartbeat", (Op.DESCRIBE, Op.READ), "audit", {"generation": 1}),
    ("POST", "/leases/{}/heartbeat", (Op.DESCRIBE, Op.READ, Op.ALTER), "compact", {"generation": 1}),
    ("GET", "/leases/{}/segments/0/log", (Op.DESCRIBE, Op.READ), "audit", None),
    ("PUT", "/leases/{}/parts/0?generation=1", (Op.ALTER,), "compact", {}),
    ("POST", "/leases/{}/commit", (Op.ALTER,), "compact", {}),
    ("POST", "/leases/{}/abort", (Op.DESCRIBE, Op.READ), "audit", {"generation": 1}),
    ("POST", "/leases/{}/abort", (Op.DESCRIBE, Op.READ, Op.ALTER), "compact", {"generation": 1}),
    ("GET", "/partitions/t/0", (Op.DESCRIBE,), "audit", None),
    ("POST", "/tokens", (Op.DESCRIBE, Op.READ), "audit", {**LEASE, "purpose": "audit"}),
    ("POST", "/tokens", (Op.DESCRIBE, Op.READ, Op.ALTER), "compact", {**LEASE, "purpose": "compact"}),
]
CLUSTER_ROUTES: list[tuple[str, str, Op, Any]] = [
    ("GET", "/metrics", Op.DESCRIBE, None),
    ("POST", "/partitions/t/0/quarantine", Op.CLUSTER_ACTION, {"reason": "r"}),
    ("GET", "/decisions", Op.CLUSTER_ACTION, None),
    ("GET", "/decisions/t/0", Op.CLUSTER_ACTION, None),
]
FOR_ALL_WHO_LOG_IN: list[tuple[str, str, Any]] = [
    ("GET", "/leases", None),
    ("GET", "/partitions", None),
    ("POST", "/runs/renew", {"run_id": "r"}),
    ("POST", "/runs/end", {"run_id": "r"}),
]
# Reading a topic's description is allowed by any of these (facts §18.4).
IMPLY_DESCRIBE = (Op.READ, Op.WRITE, Op.DELETE, Op.ALTER)
ALL = (Op.READ, Op.WRITE, Op.ALTER, Op.DESCRIBE, Op.DELETE, Op.CREATE)


def test_every_route_is_asked_here() -> None:
    def shape(path: str) -> str:
        path = re.sub(r"\{[^}]*\}", "*", path.partition("?")[0])
        return re.sub(r"/(t/0|0/log|0)(?=/|$)", lambda found: "/*" * (found[0].count("/")), path)

    rows = [*TOPIC_ROUTES, *CLUSTER_ROUTES, *FOR_ALL_WHO_LOG_IN]
    asked = {(str(row[0]), shape(str(row[1]))) for row in rows}
    known = {(route.method, shape(route.path)) for route in rights_table.ROWS}
    assert known - asked == {("GET", "/health")}


def test_a_route_without_a_row_is_not_served() -> None:
    async def endpoint(request: Any) -> Any:
        raise AssertionError

    access = Access(OwnerOfTheFile("x" * 16), everything, LeaseBook(0, int, lambda _: None), open_routes=frozenset())
    with pytest.raises(KeyError):
        access.guarded(Route("GET", "/new"), endpoint)


async def lease_id(side: SecuredHttp, purpose: str) -> str:
    granted = await side.world.lease_service.grant({**LEASE, "purpose": purpose})
    return str(granted["lease_id"])


async def test_every_route_with_and_without_each_right() -> None:
    async with LeaseWorld() as world, serving(world) as side:
        fill(world.lead(), 60)
        for method, path, needed, purpose, body in TOPIC_ROUTES:
            what = f"{method} {path} {purpose}"
            at = path.replace("{}", await lease_id(side, purpose))
            side.allow_topic(*needed)
            assert (await side.ask(method, at, ALICE, body)).status_code not in (401, 403), what
            for lacking in needed:
                held = [op for op in ALL if op is not lacking]
                if lacking is Op.DESCRIBE:
                    held = [op for op in held if op not in IMPLY_DESCRIBE]
                at = path.replace("{}", await lease_id(side, purpose))
                side.allow_topic(*held)
                answer = await side.ask(method, at, ALICE, body)
                assert (answer.status_code, answer.json()["error"]) == (403, "forbidden"), (what, lacking)
            side.allow_topic(*ALL)
            assert (await side.ask(method, at, SCRAM_BOB, body)).status_code == 403, what
            answer = await side.ask(method, at, None, body)
            assert (answer.status_code, answer.json()["error"]) == (401, "unauthorized"), what
        for method, path, operation, body in CLUSTER_ROUTES:
            side.allow_cluster(operation)
            assert (await side.ask(method, path, ALICE, body)).status_code not in (401, 403), path
            side.allow_cluster(
                *[op for op in (*ALL, Op.CLUSTER_ACTION) if op is not operation and op not in IMPLY_DESCRIBE]
            )
            assert (await side.ask(method, path, ALICE, body)).status_code == 403, path
            assert (await side.ask(method, path, None, body)).status_code == 401, path
        for method, path, body in FOR_ALL_WHO_LOG_IN:
            assert (await side.ask(method, path, SCRAM_BOB, body)).status_code in (200, 404), path
            assert (await side.ask(method, path, None, body)).status_code == 401, path
        assert (await side.ask("GET", "/health", None)).status_code == 200


async def test_what_one_may_not_describe_is_left_out() -> None:
    async with LeaseWorld() as world, serving(world) as side:
        fill(world.lead(), 3)
        await lease_id(side, "audit")
        for who, rows in ((ALICE, 1), (SCRAM_BOB, 0)):
            side.allow_topic(Op.DESCRIBE)
            told = (await side.ask("GET", "/partitions", who)).json()
            assert (len(told["partitions"]), told["log_dirs"], told["strays"]) == (rows, [], [])
            assert len((await side.ask("GET", "/leases", who)).json()["leases"]) == rows
        side.allow_cluster(Op.DESCRIBE)
        assert (await side.ask("GET", "/partitions", ALICE)).json()["log_dirs"]


async def test_rights_are_in_the_audit_log_and_taken_away_at_once() -> None:
    async with LeaseWorld() as world, serving(world) as side:
        fill(world.lead(), 3)
        side.allow_topic(Op.DESCRIBE, Op.READ)
        body = {**LEASE, "purpose": "audit"}
        assert (await side.ask("POST", "/leases", ALICE, body)).status_code == 201
        side.allow_topic(Op.DESCRIBE)
        with structlog.testing.capture_logs() as lines:
            assert (await side.ask("POST", "/leases", ALICE, body)).status_code == 403
        assert [line["event"] for line in lines if "Denied" in line["event"]] == [
            "Principal = User:alice is Denied Operation = Read from host = 127.0.0.1 on resource = Topic:LITERAL:t "
            "for request = POST /leases with resourceRefCount = 1"
        ]


async def test_metrics_may_be_open() -> None:
    async with LeaseWorld() as world, serving(world, open_routes=frozenset({Route("GET", "/metrics")})) as side:
        assert (await side.ask("GET", "/metrics", None)).status_code == 200
