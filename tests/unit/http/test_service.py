"""The HTTP side put together: health, metrics, the token's file."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from logyard.broker import portions
from logyard.broker.errors import LogyardError
from logyard.broker.http import token
from logyard.broker.http.access import Access, everything
from logyard.broker.http.identities import OwnerOfTheFile
from logyard.broker.http.metrics import LoopPauses, snake_case
from logyard.broker.http.rights_table import OPEN_WHEN_PLAIN
from logyard.broker.http.service import HttpService
from logyard.broker.leases.book import LeaseBook
from logyard.broker.model import TopicPartition
from logyard.broker.transactions.verification_figures import VerificationFigures
from tests.support.lease_world import LeaseWorld, fill


class Api:
    name, requests, errors, seconds = "Produce", 7, 1, 0.25


async def controller_gauges() -> dict[str, int]:
    return {"ActiveControllerCount": 1, "ReassigningPartitions": 3}


def side(world: LeaseWorld, ready: bool = True, verification: VerificationFigures | None = None) -> HttpService:
    return HttpService(
        world.lease_service,
        controller_gauges=controller_gauges,
        apis={0: Api()},
        health=lambda: (ready, {"status": "said"}),
        verification=verification,
    )


async def asked(http_side: HttpService, log_dir: Path, path: str, secret: str | None = None) -> httpx.Response:
    access = Access(
        OwnerOfTheFile(token.load_or_create(str(log_dir))),
        everything,
        LeaseBook(0, int, lambda _: None),
        open_routes=OPEN_WHEN_PLAIN,
    )
    transport = httpx.ASGITransport(http_side.app(access))
    headers = {} if secret is None else {"authorization": f"Bearer {secret}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://broker", headers=headers) as client:
        return await client.get(path)


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_metrics_need_no_token_and_carry_kafkas_names(tmp_path: Path) -> None:
    async with LeaseWorld() as world:
        log = world.lead()
        fill(log, 60)
        http_side = side(world)
        await world.lease_service.grant({"topic": "t", "partition": 0, "run_id": "r", "purpose": "audit"})
        world.replicas.counters.isr_shrinks = 4
        response = await asked(http_side, tmp_path, "/metrics")
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        found = samples(response.text)
        assert found["logyard_broker_info", "1", "cluster"] == 1
        assert found["logyard_leader_count",] == 1
        assert found["logyard_under_replicated_partitions",] == 0
        assert found["logyard_active_controller_count",] == 1
        assert found["logyard_reassigning_partitions",] == 0
        assert found["logyard_controller_reassigning_partitions",] == 3
        assert found["logyard_isr_shrinks_total",] == 4
        assert found["logyard_requests_total", "Produce"] == 7
        assert found["logyard_request_errors_total", "Produce"] == 1
        assert found["logyard_request_loop_seconds_total", "Produce"] == 0.25
        assert found["logyard_log_size_bytes", "t"] == log.size
        assert found["logyard_log_segments",] == len(log.segments)
        assert found["logyard_log_directory_online", "/data"] == 1
        assert found["logyard_segment_leases", "audit"] == 1
        assert found["logyard_segment_leases", "compact"] == 0
        http_side.close()


async def test_others_have_turns_while_very_many_logs_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = 0

    async def pause(seconds: float) -> None:
        nonlocal pauses
        pauses += 1

    monkeypatch.setattr(portions, "AT_ONCE", 2)
    monkeypatch.setattr(portions, "asyncio", SimpleNamespace(sleep=pause))
    async with LeaseWorld() as world:
        for number in range(9):
            world.lead(TopicPartition(f"topic-{number}", 0))
        http_side = side(world)
        found = samples((await asked(http_side, tmp_path, "/metrics")).text)
        http_side.close()
    assert found["logyard_leader_count",] == 9
    assert sum(name[0] == "logyard_log_size_bytes" for name in found) == 9
    assert pauses == 3 * (9 // 2), "the partitions that it leads, their logs, and their topics"


async def test_verifications_are_counted_and_timed(tmp_path: Path) -> None:
    now = [0.0]
    figures = VerificationFigures(lambda: now[0])
    for taken_s, refused in ((0.004, 0), (0.0205, 2), (60.0, 1)):
        now[0] = taken_s
        figures.answered(0.0, refused)
    async with LeaseWorld() as world:
        http_side = side(world, verification=figures)
        found = samples((await asked(http_side, tmp_path, "/metrics")).text)
        http_side.close()
    assert found["logyard_verification_failures_total",] == 3
    assert found["logyard_verification_time_ms_count",] == 3
    assert found["logyard_verification_time_ms_sum",] == pytest.approx(60_024.5)
    within = {bound: found["logyard_verification_time_ms_bucket", bound] for bound in ("2", "5", "50", "+Inf")}
    assert within == {"2": 0, "5": 1, "50": 2, "+Inf": 3}


@pytest.mark.parametrize(("ready", "status"), [(True, 200), (False, 503)])
async def test_health(tmp_path: Path, ready: bool, status: int) -> None:
    async with LeaseWorld() as world:
        response = await asked(side(world, ready), tmp_path, "/health")
        assert (response.status_code, response.json()) == (status, {"status": "said"})


async def test_the_token_is_kept_and_private(tmp_path: Path) -> None:
    async with LeaseWorld() as world:
        assert (await asked(side(world), tmp_path, "/leases")).status_code == 401
        file = tmp_path / token.TOKEN_FILE
        assert os.stat(file).st_mode & 0o777 == 0o600
        secret = file.read_text().strip()
        assert len(bytes.fromhex(secret)) == 32
        assert (await asked(side(world), tmp_path, "/leases", secret)).status_code == 200
        assert file.read_text().strip() == secret
        with pytest.raises(LogyardError, match=r"http\.token\.file"):
            token.load(str(tmp_path / "missing"))


def test_names_in_snake_case() -> None:
    assert snake_case("OfflinePartitionsCount") == "offline_partitions_count"
    assert snake_case("GlobalTopicCount") == "global_topic_count"
    assert snake_case("EventQueueSize") == "event_queue_size"


def test_the_longest_pause_counts_from_scrape_to_scrape() -> None:
    now = 0.0
    due: list[Any] = []

    class Timers:
        def call_later(self, delay: float, callback: Any, /) -> Any:
            due[:] = [callback]

    pauses = LoopPauses(Timers(), lambda: now)
    pauses.start()
    for at in (0.1, 0.9, 1.05):
        now = at
        due[0]()
    assert pauses.take_longest() == pytest.approx(0.7)
    assert pauses.take_longest() == 0
