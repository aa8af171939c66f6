"""A job at brokers whose HTTP side has TLS and log-ins: the driver logs in, its tasks have a run's token alone."""

import asyncio
import pickle
import re
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from logyard.broker.znodes.acls import Operation as Op
from logyard.login import http
from logyard.login.security import Security
from logyard.spark_jobs.leases import broker_http
from logyard.spark_jobs.leases.broker_http import BrokerHttp, LeaseError
from logyard.spark_jobs.leases.client import acquire, end_run, partitions_status, quarantine_replica
from tests.support.lease_world import LeaseWorld, fill
from tests.support.secured_http import ALICE, AUTHORITY, SecuredHttp, serving
from tests.support.tls_listener import OTHERS

SECURITY = Security(
    security_protocol="SASL_SSL", sasl_mechanism="PLAIN", username=ALICE[0], password=ALICE[1], ssl_ca=AUTHORITY.pem
)


@pytest.fixture(autouse=True)
def nobody_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_http, "known_addresses", set())


def at(side: SecuredHttp, security: Security = SECURITY) -> BrokerHttp:
    login = http.of(security)
    return BrokerHttp(1, f"https://127.0.0.1:{side.server.port}", "", login.trust, login)


async def test_the_driver_logs_in_and_a_task_has_the_runs_token_alone() -> None:
    async with LeaseWorld() as world, serving(world) as side:
        fill(world.lead(), 60)
        side.allow_topic(Op.READ, Op.DESCRIBE)

        def driver() -> bytes:
            broker = at(side).for_run("run", "t", "audit")
            lease = acquire(broker, "t", 0, "run", "audit")
            assert partitions_status(broker)["partitions"]
            with pytest.raises(LeaseError, match="needs ClusterAction on the cluster"):
                quarantine_replica(broker, "t", 0, "damaged")
            return pickle.dumps(lease)

        sent = await asyncio.to_thread(driver)
        assert ALICE[1].encode() not in sent

        def task() -> None:
            lease = pickle.loads(sent)
            assert lease.broker.login is None
            assert lease.broker.token not in repr(lease)
            into = memoryview(bytearray(100))
            assert lease.broker.read(lease.file_path(0, "log"), 0, 100, into) == 100
            lease.heartbeat()
            acquire(lease.broker, "t", 0, "run/task", "audit")
            with pytest.raises(LeaseError) as refused:
                acquire(lease.broker, "t", 0, "run", "export")
            assert refused.value.code == "forbidden"
            end_run([lease], "over")
            with pytest.raises(LeaseError) as refused:
                lease.heartbeat()
            assert refused.value.code == "unauthorized"

        await asyncio.to_thread(task)


async def test_what_is_wrong_is_one_line_that_says_what_to_do() -> None:
    async with LeaseWorld() as world, serving(world) as side:
        cases = [
            (at(side, replace(SECURITY, ssl_ca=OTHERS.pem)), "give its authority as http_cafile or ssl_cafile"),
            (at(side, replace(SECURITY, password="x")), "wrong user or password"),
            (at(side, replace(SECURITY, http_username="bob", http_password="y")), "wrong user or password"),
            (BrokerHttp(2, at(side).address, "", at(side).trust), "broker 1 answers there; no token was sent"),
            (replace(at(side), address=f"127.0.0.1:{side.server.port}"), "http://127.0.0.1"),
        ]
        for broker, expected in cases:
            with pytest.raises(LeaseError, match=expected) as refused:
                await asyncio.to_thread(broker.call, "GET", "/leases")
            assert "\n" not in str(refused.value)
            assert ALICE[1] not in str(refused.value)


def test_a_log_in_is_that_of_kafkas_protocol_unless_http_has_its_own(tmp_path: Path) -> None:
    assert http.of(SECURITY).is_somebody
    assert not http.of(Security(security_protocol="SASL_SSL", sasl_mechanism="GSSAPI")).is_somebody
    own = tmp_path / "ca.pem"
    own.write_text(OTHERS.pem)
    login = http.of(replace(SECURITY, http_username="x", http_password="y", http_cafile=str(own)))
    assert login.authorization == "Basic eDp5"
    assert login.trust.authorities == OTHERS.pem
    assert "eDp5" not in repr(login)
    oauth = Security(security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", oauth_token="a.b.c")
    assert http.of(oauth).authorization == "Bearer a.b.c"


@pytest.mark.parametrize(
    ("code", "advised"), [(62, "http.advertised.listener"), (64, "http.advertised"), (10, "a new")]
)
def test_a_certificate_of_another_name_or_time(code: int, advised: str) -> None:
    problem = ssl.SSLCertVerificationError()
    problem.verify_code, problem.verify_message = code, "it is refused"
    assert advised in http.advice(problem)


async def test_a_connections_test_names_the_step() -> None:
    async with LeaseWorld() as world, serving(world) as side:
        address = at(side).address
        for security, expected in (
            (SECURITY, ""),
            (replace(SECURITY, ssl_ca=OTHERS.pem), r"TLS \(https.*give its authority"),
            (replace(SECURITY, password="x"), r"log-in \(https.*user or password is refused"),
            (replace(SECURITY, sasl_mechanism="GSSAPI"), r"log-in \(https.*nobody is named: give http_username"),
        ):
            said = await asyncio.to_thread(http.failing_step, address, http.of(security))
            assert re.match(expected, said) if expected else not said, said
    assert re.match(r"address \(https.*is http.advertised.listener", http.failing_step(address, http.of(SECURITY)))
