"""docker-compose.yaml says nothing that the code does not know: commands, settings, ports, volumes, variables."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from logyard.broker.config.broker import BrokerConfig
from logyard.local.airflow.settings import Home, environment

ROOT = Path(__file__).resolve().parents[3]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())
OURS = {name: s for name, s in COMPOSE["services"].items() if s.get("image") == "logyard:local"}
BROKERS = {name: s for name, s in OURS.items() if "logyard.broker" in s["command"]}

# Variables that something we start reads: Airflow's own (checked against its config below), Spark's and numba's.
FOREIGN_VARIABLES = {"AIRFLOW_HOME", "SPARK_CONF_DIR", "SPARK_WORKER_CORES", "SPARK_WORKER_MEMORY"}
OFFICIAL_IMAGES = {
    "zookeeper": {
        "ZOO_MY_ID",
        "ZOO_SERVERS",
        "ZOO_STANDALONE_ENABLED",
        "ZOO_ADMINSERVER_ENABLED",
        "ZOO_AUTOPURGE_PURGEINTERVAL",
        "JVMFLAGS",
    },
    "postgres": {"POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD_FILE"},
}

# zookeeper: snapshots, and the log of transactions since.
DATA_OF_OFFICIAL_IMAGES = {"zookeeper": {"/data", "/datalog"}, "postgres": {"/var/lib/postgresql/data"}}


def broker_config(name: str) -> BrokerConfig:
    command = BROKERS[name]["command"]
    overrides = dict(command[at + 1].split("=", 1) for at, word in enumerate(command) if word == "--override")
    properties = (ROOT / "docker" / "server.properties").read_text()
    return BrokerConfig.parse(properties, overrides, strict=True)


def test_three_of_each_and_everything_airflow_needs() -> None:
    assert len(BROKERS) == 3
    assert sum(s["image"].startswith("zookeeper:") for s in COMPOSE["services"].values()) == 3
    said = [" ".join(s["command"]) for s in OURS.values()]
    airflow = {found[1] for found in (re.search(r"airflow (?!db check)(\S+)", text) for text in said) if found}
    assert airflow == {"db", "api-server", "scheduler", "dag-processor", "triggerer"}
    spark = [s["command"][1].rsplit(".", 1)[1] for s in OURS.values() if s["command"][0] == "spark-class"]
    assert sorted(spark) == ["Master", "Worker", "Worker"]


@pytest.mark.parametrize("name", sorted(BROKERS))
def test_every_broker_setting_is_acted_on(name: str) -> None:
    config = broker_config(name)
    assert config.warnings == []
    assert {e.protocol for e in config.listeners} == {"SASL_SSL"}
    assert config.broker_id == int(name.removeprefix("broker"))
    advertised = {e.listener: (e.host, e.port) for e in config.advertised_listeners}
    assert advertised["INTERNAL"][0] == name
    published = {int(p.rsplit(":", 1)[1]) for p in BROKERS[name]["ports"]}
    assert published == {e.port for e in config.listeners if e.listener == "HOST"}
    mounted = {volume.split(":")[1] for volume in BROKERS[name]["volumes"]}
    files = [*config.log_dirs, "/var/lib/logyard/security/key.pem", "/run/logyard/ca.pem"]
    assert all(any(file.startswith(f"{place}/") for place in mounted) for file in files)


def test_every_published_port_is_on_loopback() -> None:
    for service in COMPOSE["services"].values():
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", ()))


def test_one_service_builds_the_image() -> None:
    """Builds of one tag at the same time fail in engines with containerd's store; nobody else's image is pulled."""
    assert [name for name, service in OURS.items() if "build" in service] == ["prepare"]
    assert {service["pull_policy"] for service in OURS.values()} == {"never"}


def test_what_stays_is_watched_restarted_and_bounded() -> None:
    for name, service in COMPOSE["services"].items():
        runs_once = name in ("prepare", "airflow-migrate")
        assert service["restart"] == ("no" if runs_once else "unless-stopped"), name
        assert runs_once or {"healthcheck", "mem_limit"} <= service.keys(), name
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}, name


def test_hosts_have_the_names_of_their_services() -> None:
    """A name that is used in commands, addresses and certificates stays when the container is made again."""
    for name, service in COMPOSE["services"].items():
        assert service.get("hostname", name) == name
    needing = [name for name in OURS if name not in ("prepare", "airflow-migrate")]
    assert all("hostname" in COMPOSE["services"][name] for name in needing)


def test_data_of_official_images_is_in_named_volumes() -> None:
    """What an image keeps in a volume without a name is lost when its container is removed."""
    for service in COMPOSE["services"].values():
        mounted = {volume.split(":")[1] for volume in service.get("volumes", ())}
        assert DATA_OF_OFFICIAL_IMAGES.get(service["image"].split(":")[0], set()) <= mounted


def test_every_volume_is_declared_and_used() -> None:
    used_volumes = set()
    for service in COMPOSE["services"].values():
        used_volumes |= {volume.split(":")[0] for volume in service.get("volumes", ())}
    assert used_volumes - {"./my-dags"} == set(COMPOSE["volumes"])


def test_variables_of_official_images_are_theirs() -> None:
    for service in COMPOSE["services"].values():
        known = OFFICIAL_IMAGES.get(service["image"].split(":")[0])
        if known is not None:
            assert set(service.get("environment", ())) <= known


def test_dags_are_read_as_by_logyard_up(tmp_path: Path) -> None:
    """Airflow's own defaults find a new file after five minutes, and read those that stay each half minute."""
    home = Home(tmp_path, tmp_path)
    home.prepare()
    up = environment(home, 1, {}, {})
    described = COMPOSE["services"]["airflow-dag-processor"]["environment"]
    for name in ("REFRESH_INTERVAL", "MIN_FILE_PROCESS_INTERVAL"):
        variable = f"AIRFLOW__DAG_PROCESSOR__{name}"
        assert described[variable] == up[variable]


@pytest.mark.airflow
def test_airflow_knows_every_variable() -> None:
    import airflow

    described = yaml.safe_load((Path(airflow.__file__).parent / "config_templates" / "config.yml").read_text())
    simple_auth = {("core", "simple_auth_manager_users"), ("core", "simple_auth_manager_passwords_file")}
    known = {(section, option) for section, about in described.items() for option in about["options"]} | simple_auth
    for service in OURS.values():
        for variable in service.get("environment", ()):
            match = re.fullmatch(r"AIRFLOW__(\w+?)__(\w+)", variable)
            if match:
                option = match[2].lower().removesuffix("_cmd")
                assert (match[1].lower(), option) in known, variable
            else:
                assert variable in FOREIGN_VARIABLES or variable.startswith("AIRFLOW_CONN_"), variable


def test_connections_are_of_types_that_exist() -> None:
    from logyard.operators.provider_info import get_provider_info

    ours = {c["connection-type"] for c in get_provider_info()["connection-types"]}
    for service in OURS.values():
        for variable, value in service.get("environment", {}).items():
            if variable.startswith("AIRFLOW_CONN_"):
                assert json.loads(value)["conn_type"] in ours | {"spark"}


def test_the_image_copies_every_folder_it_runs_from() -> None:
    copied = set(re.findall(r"^COPY (\S+) \1$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert {"broker", "operators", "plugins", "dags", "spark_jobs", "logyard", "scripts", "docker"} <= copied
