"""`prepare` and a broker of docker-compose.yaml without containers: their very commands, on volumes that are folders.

The whole of the compose file runs in tests/compose.
"""

import json
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from logyard.local.zookeeper import jars
from tests.support.service_host import ServiceHost
from tests.support.zookeeper import java

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[3]
COMPOSE_TEXT = (ROOT / "docker-compose.yaml").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE_TEXT)["services"]
IMAGE_USER = 1000
ZOOKEEPER = "dataDir={data}\nclientPort=2181\ntickTime=1000\nadmin.enableServer=false\n"
LIST_TOPICS = re.search(r"docker compose exec broker1 (logyard topics list .*)", COMPOSE_TEXT)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceHost]:
    directory = tmp_path_factory.mktemp("host")
    (directory / "zookeeper").mkdir()
    (directory / "zoo.cfg").write_text(ZOOKEEPER.format(data=directory / "zookeeper"))
    with ServiceHost(directory, ROOT) as host:
        for service in ("prepare", "broker1"):
            host.mount(SERVICES[service])
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        host.start([java(), "-Xmx128m", "-cp", f"{jars()}/*", main, str(directory / "zoo.cfg")])
        yield host


def prepared(host: ServiceHost) -> None:
    assert host.run(SERVICES["prepare"]["command"]) == (0, "prepare: ready\n")


def contents(host: ServiceHost) -> dict[str, tuple[bytes, int]]:
    """What `prepare` has written: text and owner by path."""
    found = [
        path for path in host.volumes.rglob("*") if path.is_file() and "log" not in path.relative_to(host.volumes).parts
    ]
    return {str(path.relative_to(host.volumes)): (path.read_bytes(), path.stat().st_uid) for path in found}


def healthy(host: ServiceHost, service: str = "broker1") -> bool:
    return host.run(SERVICES[service]["healthcheck"]["test"][1:])[0] == 0


def topics(host: ServiceHost) -> tuple[int, str]:
    assert LIST_TOPICS is not None
    return host.run(shlex.split(LIST_TOPICS[1]))


@pytest.fixture
def broker(host: ServiceHost) -> Iterator[None]:
    """Broker 1, after `prepare` has ended, as `depends_on` says."""
    prepared(host)
    process = host.start(SERVICES["broker1"]["command"])
    deadline = time.monotonic() + 60
    while not healthy(host):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
    yield
    process.terminate()  # as `docker stop`
    assert process.wait(60) == 0


def test_it_may_be_killed_at_any_moment(host: ServiceHost) -> None:
    """Also before the ensemble is there."""
    for after_s in (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4):
        process = host.start(SERVICES["prepare"]["command"])
        time.sleep(after_s)
        host.kill(process)
    prepared(host)
    first = contents(host)
    assert {name for name, (_, owner) in first.items() if owner != IMAGE_USER} <= {
        name for name in first if name.startswith(("authority/", "postgres-secrets/"))
    }
    prepared(host)
    assert contents(host) == first


@pytest.mark.usefixtures("broker")
def test_a_broker_starts_from_its_volumes_and_lets_its_super_user_in(host: ServiceHost) -> None:
    status, said = topics(host)
    assert status == 0, said
    assert healthy(host, "zookeeper1")
    before = contents(host)
    prepared(host)  # a second `docker compose up`
    assert contents(host) == before


def test_a_broker_that_is_gone_is_not_healthy(host: ServiceHost) -> None:
    assert not healthy(host)
    assert not healthy(host, "airflow-scheduler1")


def test_a_full_volume_is_told_in_one_line_and_mended_later(host: ServiceHost) -> None:
    place = host.inside("/prepare/broker2")
    host.outside(f"mount -t tmpfs -o size=4k none {place}")
    status, said = host.run(SERVICES["prepare"]["command"])
    assert status == 1
    assert re.fullmatch(r"prepare: .*No space left on device.*\n", said)
    host.outside(f"umount {place}")
    prepared(host)


def test_an_authority_that_is_lost_is_made_anew(host: ServiceHost) -> None:
    """Its volume was removed and ZooKeeper's was not: certificates and passwords are new, and users log in by them."""
    before = contents(host)
    for path in (host.volumes / "authority").iterdir():
        path.unlink()
    prepared(host)
    after = contents(host)
    assert before["authority/passwords.json"] != after["authority/passwords.json"]
    assert before["broker1/security/key.pem"] != after["broker1/security/key.pem"]


@pytest.mark.usefixtures("broker")
def test_a_broker_starts_with_the_new_ones(host: ServiceHost) -> None:
    status, said = topics(host)
    assert status == 0, said


def test_what_is_no_json_is_told(host: ServiceHost) -> None:
    path = host.volumes / "authority" / "passwords.json"
    text = path.read_text()
    path.write_text(json.dumps(json.loads(text))[:-10])
    status, said = host.run(SERVICES["prepare"]["command"])
    assert (status, said.count("\n")) == (1, 1)
    assert "passwords.json cannot be read" in said
    path.write_text(text)
    prepared(host)
