"""Settings of brokers from Airflow: what is as wanted stays, brokers judge, and secrets are refused."""

from collections.abc import Mapping
from typing import Any

import pytest

pytest.importorskip("airflow.sdk")

from logyard.admin.cluster.snapshot import ConfigValue
from logyard.operators.airflow_names import AirflowFailException
from logyard.operators.brokers import AlterBrokerSettingsOperator
from tests.support.airflow_tasks import context, run, use
from tests.support.memory_clients import MemoryClient
from tests.support.memory_cluster import MemoryCluster

pytestmark = pytest.mark.airflow


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    made = MemoryCluster({1: None, 2: None})
    use(monkeypatch, made)
    return made


def altered(broker: int | str, settings: Mapping[str, Any] | str, **more: Any) -> tuple[dict[str, Any], str]:
    """The result, and the sentence."""
    told = context()
    found, _ = run(AlterBrokerSettingsOperator(task_id="a", broker=broker, settings=settings, **more), told)
    return found, told["ti"].values["outcome"]["sentence"]


def test_settings_of_one_broker_are_set_once_and_unset(cluster: MemoryCluster) -> None:
    wanted = {"log.cleaner.threads": 2, "unclean.leader.election.enable": True, "never.set": None}
    planned, said = altered("1", wanted, dry_run=True)
    assert (said, cluster.broker_config) == (
        "2 settings of broker 1 would change",
        {1: {}} if 1 in cluster.broker_config else {},
    )
    found, said = altered("1", wanted)
    assert found["set"] == planned["set"] == {"log.cleaner.threads": "2", "unclean.leader.election.enable": "true"}
    assert (found["unset"], said) == ([], "2 settings of broker 1 changed")
    assert cluster.broker_config == {1: found["set"]}
    assert altered(1, wanted)[1] == "The settings of broker 1 were as wanted already, nothing changed"
    gone, _ = altered(1, '{"log.cleaner.threads": null}')
    assert (gone["unset"], gone["before"]) == (["log.cleaner.threads"], {"log.cleaner.threads": "2"})
    assert cluster.broker_config == {1: {"unclean.leader.election.enable": "true"}}


def test_settings_of_all_brokers_are_their_own_layer(cluster: MemoryCluster) -> None:
    MemoryClient(cluster).alter_broker_configs(1, {"num.io.threads": "4"})
    found, said = altered("default", {"num.io.threads": "4"})
    assert (found["broker"], said) == ("default", "1 setting of all brokers changed")
    assert cluster.broker_defaults == {"num.io.threads": "4"}
    # What only comes from the default is not the broker's own: it is set there too.
    assert altered(2, {"num.io.threads": 4})[0]["set"] == {"num.io.threads": "4"}


def test_what_brokers_refuse_fails_the_task_for_good(cluster: MemoryCluster) -> None:
    for dry_run in (True, False):
        with pytest.raises(AirflowFailException, match="Cannot update these configs dynamically"):
            altered(1, {"broker.id": 9, "num.io.threads": 3}, dry_run=dry_run)
    assert not any(cluster.broker_config.values())


@pytest.mark.parametrize("broker", ["default", 1])
def test_secrets_are_refused_by_name_and_by_what_brokers_say(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, broker: int | str
) -> None:
    with pytest.raises(AirflowFailException, match=r"^ssl\.keystore\.password: a secret") as refused:
        altered(broker, {"num.io.threads": 3, "ssl.keystore.password": "hunter2"})
    assert "hunter2" not in str(refused.value)
    told = {"plugin.pass": ConfigValue(None, "STATIC_BROKER_CONFIG", sensitive=True)}
    monkeypatch.setattr(MemoryClient, "broker_configs", lambda *_: told)
    with pytest.raises(AirflowFailException, match=r"^plugin\.pass: a secret"):
        altered(broker, {"plugin.pass": "hunter2"})
    assert (cluster.broker_config, cluster.broker_defaults) == ({}, {})


@pytest.mark.parametrize("broker", ["", "all", "-1", "1.5", "99999999999"])
def test_a_broker_is_an_id_or_the_default(cluster: MemoryCluster, broker: str) -> None:
    with pytest.raises(AirflowFailException, match="its id is expected, or default"):
        altered(broker, {"num.io.threads": 3})
