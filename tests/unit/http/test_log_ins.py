"""Log-ins at the HTTP side: passwords, certificates, tokens of runs; whoever guesses, lies, or is late."""

import asyncio
import base64
import hashlib
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import structlog

from logyard.broker.http.run_file import NAME
from logyard.broker.http.run_tokens import PREFIX
from logyard.broker.znodes.acls import Operation as Op
from logyard.broker.znodes.acls import ResourceType
from tests.support.lease_world import LeaseWorld, fill
from tests.support.secured_http import (
    ALICE,
    AUTHORITY,
    CERTIFICATE,
    SCRAM_BOB,
    SecuredHttp,
    serving,
)
from tests.support.tls_listener import client_context

LEASE = {"topic": "t", "partition": 0, "run_id": "run"}


async def status(side: SecuredHttp, who: tuple[str, str] | str | None) -> int:
    return (await side.ask("GET", "/leases", who)).status_code


async def test_passwords_of_plain_and_of_scram() -> None:
    async with LeaseWorld() as world, serving(world) as side:
        assert [await status(side, who) for who in (ALICE, SCRAM_BOB)] == [200, 200]
        wrong = [("alice", "bob's password"), ("nobody", "x"), ("", ""), ("alice\0", ALICE[1]), ("bob", "")]
        assert [await status(side, who) for who in wrong] == [401] * 5
        for header in (
            "Basic",
            "Basic ?",
            "Basic " + base64.b64encode(b"\xff:\xff").decode(),
            "Digest x",
            "Bearer x.y",
        ):
            answer = await side.client.get("/leases", headers={"authorization": header})
            assert (answer.status_code, answer.headers["connection"]) == (401, "close"), header
        assert (side.counters.succeeded, side.counters.refused) == (2, 10)


async def test_certificates_name_their_user_and_nobody_has_none() -> None:
    async with LeaseWorld() as world, serving(world, "SSL", certificate=CERTIFICATE) as side:
        side.allow(ResourceType.TOPIC, "t", Op.DESCRIBE, Op.READ, principal="User:CN=alice")
        fill(world.lead(), 3)
        answer = await side.ask("POST", "/tokens", None, {**LEASE, "purpose": "audit"})
        assert answer.status_code == 201
        # The task of a job has the token alone.
        task = client_context(None, AUTHORITY)
        async with httpx.AsyncClient(base_url=side.client.base_url, verify=task) as client:
            bearer = {"authorization": f"Bearer {answer.json()['token']}"}
            assert (await client.post("/leases", json={**LEASE, "purpose": "audit"}, headers=bearer)).status_code == 201
            assert (await client.get("/leases")).status_code == 401
            assert (await client.get("/leases", auth=ALICE)).status_code == 401


async def test_a_stranger_who_guesses_is_slowed_and_named() -> None:
    async with LeaseWorld() as world, serving(world) as side:
        with structlog.testing.capture_logs() as lines:
            for number in range(12):
                assert await status(side, ("alice", f"guess {number}")) == 401
            took = asyncio.get_running_loop().time()
            assert await status(side, ("alice", "guess")) == 401
            took = asyncio.get_running_loop().time() - took
        assert took >= 0.1
        told = [line for line in lines if line["event"] == "log-in refused"]
        assert [line["within_a_minute"] for line in told] == [*range(1, 11)]
        assert (told[0]["user"], told[0]["peer"], told[0]["listener"]) == ("alice", "127.0.0.1", "HTTP")
        assert not any("guess" in str(line) for line in lines)
        assert await status(side, SCRAM_BOB) == 200


async def test_refused_log_ins_that_wait_are_few() -> None:
    async with LeaseWorld() as world, serving(world, delay_s=0.5) as side:
        asked = [status(side, ("alice", "x")) for _ in range(40)]
        found = await asyncio.gather(*asked)
        assert set(found) == {401, 429}
        assert found.count(401) >= 16


async def test_a_token_is_for_one_run_topic_and_purpose() -> None:
    async with LeaseWorld() as world, serving(world) as side:
        fill(world.lead(), 60)
        side.allow_topic(Op.READ, Op.DESCRIBE, Op.ALTER)
        side.allow_topic(Op.READ, Op.DESCRIBE, Op.ALTER, topic="other")
        audit, compact = await side.token("audit"), await side.token("compact")
        other, elsewhere = await side.token("audit", topic="other"), await side.token("audit", run_id="another run")
        body = {**LEASE, "purpose": "audit"}
        read = (await side.ask("POST", "/leases", audit, body)).json()
        swap = (await side.ask("POST", "/leases", compact, {**body, "purpose": "compact"})).json()
        file = "/leases/{}/segments/0/log"
        assert (await side.ask("GET", file.format(read["lease_id"]), audit)).status_code == 200
        assert (await side.ask("GET", file.format(swap["lease_id"]), compact)).status_code == 200
        for token in (other, elsewhere, compact):
            assert (await side.ask("POST", "/leases", token, body)).status_code == 403
            assert (await side.ask("GET", file.format(read["lease_id"]), token)).status_code == 403
            assert (
                await side.ask("POST", f"/leases/{read['lease_id']}/abort", token, {"generation": 1})
            ).status_code == 403
        for lease in (read, swap):
            commit = f"/leases/{lease['lease_id']}/commit"
            assert (await side.ask("POST", commit, audit, {})).status_code == 403
            assert (
                await side.ask("PUT", f"/leases/{lease['lease_id']}/parts/0?generation=1", audit)
            ).status_code == 403
        assert (await side.ask("GET", "/partitions/t/0", other)).status_code == 403
        assert (await side.ask("GET", "/partitions", other)).json()["partitions"] == []
        # A token logs nobody in, whatever its owner may do.
        side.allow_cluster(Op.DESCRIBE, Op.CLUSTER_ACTION)
        for method, path in (("GET", "/metrics"), ("GET", "/decisions"), ("POST", "/partitions/t/0/quarantine")):
            assert (await side.ask(method, path, audit, {})).status_code == 403
        for path in ("/tokens", "/runs/renew"):
            assert (await side.ask("POST", path, audit, body)).status_code == 403
        assert (await side.ask("POST", "/runs/end", elsewhere, {"run_id": "run"})).status_code == 403
        part = {**body, "run_id": "run/task-1"}
        assert (await side.ask("POST", "/leases", audit, part)).status_code == 201
        assert (await side.ask("POST", "/leases", audit, {**body, "run_id": "run2"})).status_code == 403
        # Its owner's rights count at each request.
        side.allow_topic(Op.DESCRIBE)
        assert (await side.ask("GET", file.format(read["lease_id"]), audit)).status_code == 403


async def test_a_token_ends_with_its_run_by_time_and_whatever_the_wall_clock_does() -> None:
    async with LeaseWorld() as world, serving(world) as side:
        side.allow_topic(Op.READ, Op.DESCRIBE)
        token = await side.token(ttl_ms=60_000)
        world.clock.set_wall(10**7)
        assert await status(side, token) == 200
        world.clock.set_wall(-2 * 10**7)
        world.clock.advance(59)
        assert await status(side, token) == 200
        renewed = await side.ask("POST", "/runs/renew", ALICE, {"run_id": "run"})
        assert renewed.json()["ttl_ms"] == 60_000
        world.clock.advance(59)
        assert await status(side, token) == 200
        world.clock.advance(1)
        assert await status(side, token) == 401
        assert (await side.ask("POST", "/runs/renew", ALICE, {"run_id": "run"})).status_code == 404
        ended = await side.token()
        assert ended != token
        assert (await side.ask("POST", "/runs/end", SCRAM_BOB, {"run_id": "run"})).json()["ended"] is False
        assert await status(side, ended) == 200
        assert (await side.ask("POST", "/runs/end", ALICE, {"run_id": "run"})).json()["ended"] is True
        assert [await status(side, old) for old in (token, ended)] == [401, 401]


async def test_work_on_its_leases_keeps_a_run_alive_for_a_week_at_most(tmp_path: Path) -> None:
    async with LeaseWorld() as world, serving(world, log_dir=str(tmp_path)) as side:
        fill(world.lead(), 60)
        side.allow_topic(Op.READ, Op.DESCRIBE)
        token = await side.token(ttl_ms=24 * 3600_000)
        for _ in range(6):
            world.clock.advance(23 * 3600)
            answer = await side.ask("POST", "/leases", token, {**LEASE, "purpose": "audit"})
            assert answer.status_code == 201
            assert await status(side, token) == 200
        world.clock.advance(23 * 3600)
        assert await status(side, token) == 200
        world.clock.advance(8 * 3600)
        assert await status(side, token) == 401


async def test_a_disk_that_fails_stops_no_work_and_revives_no_ended_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with LeaseWorld() as world:
        async with serving(world, log_dir=str(tmp_path)) as side:
            fill(world.lead(), 60)
            side.allow_topic(Op.READ, Op.DESCRIBE)
            token = await side.token()
            lease = (await side.ask("POST", "/leases", token, {**LEASE, "purpose": "audit"})).json()["lease_id"]
            with monkeypatch.context() as failing:
                failing.setattr("os.replace", full)
                world.clock.advance(400)
                assert (await side.ask("GET", f"/leases/{lease}", token)).status_code == 200
                assert (await side.ask("POST", "/runs/end", ALICE, {"run_id": "run"})).status_code == 507
            again = await side.ask("POST", "/runs/end", ALICE, {"run_id": "run"})
            assert (again.status_code, again.json()["ended"]) == (200, False)
        async with serving(world, log_dir=str(tmp_path)) as side:
            assert await status(side, token) == 401


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


async def test_a_token_ends_its_own_run() -> None:
    async with LeaseWorld() as world, serving(world) as side:
        side.allow_topic(Op.READ, Op.DESCRIBE)
        token = await side.token()
        assert (await side.ask("POST", "/runs/end", token, {"run_id": "run"})).json()["ended"] is True
        assert await status(side, token) == 401


async def test_a_restart_keeps_runs_and_ended_ones_stay_ended(tmp_path: Path) -> None:
    async with LeaseWorld() as world:
        async with serving(world, log_dir=str(tmp_path)) as side:
            side.allow_topic(Op.READ, Op.DESCRIBE)
            token, ended = await side.token(run_id="a", ttl_ms=60_000), await side.token(run_id="b")
            await side.ask("POST", "/runs/end", ALICE, {"run_id": "b"})
        assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o600
        async with serving(world, log_dir=str(tmp_path)) as side:
            side.allow_topic(Op.READ, Op.DESCRIBE)
            assert [await status(side, one) for one in (token, ended)] == [200, 401]
        world.clock.set_wall(-(10**6))  # set back while it is down: not longer than its time to live
        async with serving(world, log_dir=str(tmp_path)) as side:
            assert await status(side, token) == 200
            world.clock.advance(60)
            assert await status(side, token) == 401
        (tmp_path / NAME).write_text("[{]")
        async with serving(world, log_dir=str(tmp_path)) as side:
            assert await status(side, token) == 401


async def test_no_changed_token_is_taken() -> None:
    async with LeaseWorld() as world, serving(world) as side:
        side.allow_topic(Op.READ, Op.DESCRIBE)
        token = await side.token()
        assert side.runs.find(token) is not None
        for at in range(len(token)):
            for changed in (token[:at] + token[at + 1 :], token[:at] + chr(ord(token[at]) ^ 1) + token[at + 1 :]):
                assert side.runs.find(changed) is None, at
        named = base64.urlsafe_b64encode(json.dumps(["other", "audit"]).encode()).decode().rstrip("=")
        key, _, mac = token.removeprefix(PREFIX).split(".")
        assert side.runs.find(f"{PREFIX}{key}.{named}.{mac}") is None
        for odd in (
            "",
            PREFIX,
            f"{PREFIX}..",
            f"{PREFIX}{key}..",
            token + "\u00e9",
            token * 100,
            f"{PREFIX}{key}.[.{mac}",
        ):
            assert side.runs.find(odd) is None


async def test_runs_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logyard.broker.http.run_tokens.RUNS_OF_ONE_MAX", 2)
    async with LeaseWorld() as world, serving(world) as side:
        side.allow_topic(Op.READ, Op.DESCRIBE)
        for run_id in ("a", "b", "b"):
            await side.token(run_id=run_id)
        body = {**LEASE, "run_id": "c", "purpose": "audit"}
        assert (await side.ask("POST", "/tokens", ALICE, body)).json()["error"] == "too_many_runs"
        for odd in (
            {"ttl_ms": 1},
            {"ttl_ms": True},
            {"ttl_ms": "60000"},
            {"run_id": ""},
            {"topic": ""},
            {"purpose": "x"},
        ):
            answer = await side.ask("POST", "/tokens", ALICE, {**body, **odd})
            assert answer.status_code in (400, 403), odd


async def test_plain_text_and_old_versions_get_nothing() -> None:
    async with LeaseWorld() as world, serving(world) as side:
        reader, writer = await asyncio.open_connection("127.0.0.1", side.server.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n")
        assert b"HTTP" not in await asyncio.wait_for(reader.read(), 20)
        writer.close()
        old = client_context(None, AUTHORITY)
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
        old.set_ciphers("ALL:@SECLEVEL=0")
        reader, writer = await asyncio.open_connection("127.0.0.1", side.server.port, ssl=old)
        writer.close()
        assert await status(side, ALICE) == 200


async def test_an_answer_of_megabytes_and_a_body_in_pieces_come_through() -> None:
    async with LeaseWorld() as world, serving(world) as side:
        log = world.lead()
        fill(log, 2000)
        side.allow_topic(Op.READ, Op.DESCRIBE, Op.ALTER)
        lease = (await side.ask("POST", "/leases", ALICE, {**LEASE, "purpose": "compact"})).json()
        first = lease["segments"][0]
        data = (
            await side.ask("GET", f"/leases/{lease['lease_id']}/segments/{first['base_offset']}/log", ALICE)
        ).content
        assert len(data) == first["size"]

        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(data), 1000):
                yield data[at : at + 1000]

        at = f"/leases/{lease['lease_id']}/parts/{first['base_offset']}?generation={lease['generation']}"
        headers = {"x-content-sha256": hashlib.sha256(data).hexdigest(), "content-length": str(len(data))}
        answer = await side.client.put(at, content=pieces(), headers=headers, auth=ALICE)
        assert answer.status_code == 201, answer.text
