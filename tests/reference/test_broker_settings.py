"""Settings of Apache Kafka's brokers: judged with validate-only, changed, and told, with ZooKeeper and without."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from logyard.admin.cluster.requests import ClusterRequests
from logyard.admin.settings import ClusterSettings
from logyard.plugins.logyard_ui.cluster.broker_settings import BrokerChange, check_broker, read_defaults
from logyard.plugins.logyard_ui.cluster.security import NO_AUTHORIZER, read_acls, read_quotas, read_users
from tests.support import kafka
from tests.support.real_cluster import eventually

pytestmark = [pytest.mark.reference, pytest.mark.timeout(300)]

RETENTION, DEFAULT = "log.retention.ms", "DYNAMIC_DEFAULT_BROKER_CONFIG"


@pytest.fixture(scope="module", params=["ZooKeeper", "KRaft"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterRequests]:
    kafka.jars_or_skip()
    directory = tmp_path_factory.mktemp("kafka")
    settings = {"total_timeout_s": 30}
    if request.param == "KRaft":
        with kafka.running_kraft(directory) as bootstrap, closing(open_(bootstrap, settings)) as found:
            yield found
    else:
        with kafka.running(directory, "K") as cluster, closing(open_(cluster.bootstrap, settings)) as found:
            yield found


def open_(bootstrap: str, settings: dict[str, int]) -> ClusterRequests:
    return ClusterRequests(ClusterSettings.read(bootstrap, settings))


def test_a_broker_judges_before_anything_changes(client: ClusterRequests) -> None:
    (broker,) = client.snapshot([]).brokers
    for of in (broker, None):
        assert check_broker(client, BrokerChange(of, ((RETENTION, "3600000"),))).refusal is None
        for name, value in ((RETENTION, "soon"), ("log.dirs", "/elsewhere")):
            refusal = check_broker(client, BrokerChange(of, ((name, value),))).refusal
            assert refusal is not None, name
            assert (refusal.part, bool(refusal.text)) == ("configs", True)
    assert client.broker_defaults() == {}
    assert client.broker_configs(broker)[RETENTION].source not in ("DYNAMIC_BROKER_CONFIG", DEFAULT)


def test_settings_of_one_and_of_all_are_changed_and_told(client: ClusterRequests) -> None:
    (broker,) = client.snapshot([]).brokers
    client.alter_broker_configs(None, {RETENTION: "3600000"})
    eventually(lambda: client.broker_configs(broker)[RETENTION].value == "3600000", "the broker has it")
    assert {name: (one.value, one.source) for name, one in read_defaults(client).value.items()} == {
        RETENTION: ("3600000", DEFAULT)
    }
    client.alter_broker_configs(broker, {RETENTION: "7200000"})
    eventually(lambda: client.broker_configs(broker)[RETENTION].value == "7200000", "its own counts")
    client.alter_broker_configs(broker, {}, [RETENTION])
    eventually(lambda: client.broker_configs(broker)[RETENTION].source == DEFAULT, "what is below it counts")
    client.alter_broker_configs(None, {}, [RETENTION])
    eventually(lambda: client.broker_defaults() == {}, "nothing is set")


def test_without_an_authorizer_one_sentence_says_so(client: ClusterRequests) -> None:
    assert read_acls(client).refused == NO_AUTHORIZER
    assert (read_users(client).value, read_quotas(client).value) == ({}, ())
