import base64
import json
import stat
from pathlib import Path

import pytest

from logyard.admin.settings import ClusterSettings
from logyard.local.airflow.settings import Home, connections, dags_folder, environment
from logyard.local.security import ADMIN, ClusterSecurity


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path / "home", tmp_path / "kernels")
    found.prepare()
    return found


def test_secrets_are_random_private_and_kept(home: Home, tmp_path: Path) -> None:
    for name in ("passwords.json", "keys.json"):
        assert stat.S_IMODE((home.directory / name).stat().st_mode) == 0o600
    before = home.password(), home.keys()
    home.prepare()
    assert (home.password(), home.keys()) == before
    other = Home(tmp_path / "other", tmp_path / "kernels")
    other.prepare()
    assert other.password() != home.password()
    assert not set(other.keys().values()) & set(home.keys().values())
    assert len(base64.urlsafe_b64decode(home.keys()["AIRFLOW__CORE__FERNET_KEY"])) == 32


def test_no_secret_is_a_password_of_a_name(home: Home) -> None:
    words = json.loads(home.passwords.read_text())
    assert set(words) == {"admin", "ops", "viewer"}
    assert len(set(words.values())) == 3
    assert all(len(word) >= 20 for word in words.values())


def test_everything_is_bound_to_loopback_and_ours(home: Home) -> None:
    base = {"PATH": "/bin", "AIRFLOW__CORE__DAGS_FOLDER": "/another", "AIRFLOW_CONN_X": "y", "LANG": "C"}
    found = environment(home, 18080, {"AIRFLOW__API__WORKERS": "2"}, base)
    assert found["AIRFLOW__API__HOST"] == found["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert found["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == "http://127.0.0.1:18080/execution/"
    assert found["AIRFLOW__CORE__DAGS_FOLDER"] == str(dags_folder())
    assert found["LANG"] == "C"
    assert found["AIRFLOW__API__WORKERS"] == "2"
    assert "AIRFLOW_CONN_X" not in found
    assert found["PATH"].endswith(":/bin")
    assert list(home.plugins.iterdir()) == []
    assert home.password() not in json.dumps(found)


def test_a_proxy_is_not_asked_for_what_is_here(home: Home) -> None:
    """Tasks could not report to the API server, and their tokens would go to the proxy."""
    names = ("no_proxy", "NO_PROXY")
    for base, wanted in (
        ({"HTTP_PROXY": "http://proxy:3128"}, "127.0.0.1,localhost"),
        ({"http_proxy": "http://proxy:3128", "NO_PROXY": ".corp"}, ".corp,127.0.0.1,localhost"),
        ({"no_proxy": "a", "NO_PROXY": "b"}, "a,127.0.0.1,localhost"),
    ):
        found = environment(home, 18080, {}, base)
        assert [found[name] for name in names] == [wanted, wanted]


def test_connections_can_be_tested(home: Home) -> None:
    assert environment(home, 18080, {}, {})["AIRFLOW__CORE__TEST_CONNECTION"] == "Enabled"


def test_new_files_of_dags_are_found_at_once_and_old_ones_read_seldom(home: Home) -> None:
    """Reading the packaged DAGs takes 12 s of CPU: at rest a twentieth of a core is enough for files that stay."""
    found = environment(home, 18080, {}, {})
    assert int(found["AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL"]) >= 12 * 20
    assert int(found["AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL"]) <= 5


def test_own_dags_are_read_beside_the_packaged_ones(tmp_path: Path) -> None:
    own = tmp_path / "mine"
    home = Home(tmp_path / "home", tmp_path / "kernels", own)
    home.prepare()
    (own / "d.py").write_text("")
    home.prepare()  # keeps what is there
    assert [path.name for path in own.iterdir()] == ["d.py"]
    found = json.loads(environment(home, 18080, {}, {})["AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST"])
    assert [bundle["kwargs"]["path"] for bundle in found] == [str(dags_folder()), str(own)]
    assert len({bundle["name"] for bundle in found}) == 2


def test_dags_are_the_packages_own() -> None:
    assert dags_folder() == Path(__file__).resolve().parents[4] / "dags"


def test_connections_of_a_cluster(tmp_path: Path) -> None:
    description = {"bootstrap": "127.0.0.1:1,127.0.0.1:2", "zookeeper": "127.0.0.1:3"}
    found = connections(description, tmp_path / "cluster.json")
    logyard = json.loads(found["AIRFLOW_CONN_LOGYARD_DEFAULT"])
    assert (logyard["conn_type"], logyard["host"]) == ("logyard", "127.0.0.1:1,127.0.0.1:2")
    assert logyard["extra"]["zookeeper"] == "127.0.0.1:3"
    command = logyard["extra"]["broker_start_command"]
    assert command[1:] == ["cluster", "start-broker", "--dir", str(tmp_path), "--id", "{broker_id}"]
    assert json.loads(found["AIRFLOW_CONN_SPARK_DEFAULT"])["host"] == "local[2]"


def test_the_connection_of_a_secured_cluster_logs_in(tmp_path: Path) -> None:
    description = {"bootstrap": "127.0.0.1:1", "zookeeper": "127.0.0.1:3"}
    security = ClusterSecurity(tmp_path)
    login = security.login(own_zookeeper=True)
    found = json.loads(connections(description, tmp_path / "cluster.json", login=login)["AIRFLOW_CONN_LOGYARD_DEFAULT"])
    settings = ClusterSettings.read(found["host"], found["extra"], username=found["login"], password=found["password"])
    assert (settings.security_protocol, settings.sasl_mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert (settings.username, settings.password) == (ADMIN, security.password(ADMIN))
    assert settings.ssl_cafile == str(security.authority.certificate)
    assert settings.zookeeper_config_file == str(security.zookeeper_client_file)
    assert security.password(ADMIN) not in json.dumps(found["extra"])
    assert "zookeeper_config_file" not in security.login(own_zookeeper=False)
