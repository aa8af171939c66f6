"""`prepare` dies before each of its writes, and the next one completes what it has begun; all that it made agrees."""

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from logyard.admin.configs.entities import credential
from logyard.broker.znodes import configs
from logyard.broker.znodes.ops import SetData
from logyard.local import containers, files
from logyard.local.scram_users import MECHANISM
from logyard.login import jaas
from tests.support.tree_znodes import TreeZnodes

USERS = ("admin", "broker", "airflow")


class Killed(BaseException):
    """No handler of errors catches it, as nothing catches SIGKILL."""


class Volumes:
    """Folders in the place of volumes, and a ZooKeeper in memory; `prepare` dies at a write, if told so."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.directory, self.writes = directory, 0
        self._dies_at = 0
        patch.setattr(containers, "OWN", directory)
        for name in ("AIRFLOW", "SPARK", "POSTGRES", "PUBLIC"):
            patch.setattr(containers, name, directory / name.lower())
        if os.geteuid() != 0:  # only root gives files away; what is given is looked at in tests/integration/platform
            patch.setattr(containers, "give", lambda top: None)
        patch.setattr(containers, "connected", lambda deadline: self.znodes)
        self._patch = patch
        patch.setattr(files, "write_text", self._counted(files.write_text))
        self.lose_zookeeper()
        for name in (*containers.BROKERS, "airflow", "spark", "postgres", "public"):
            (directory / name).mkdir()

    def lose_zookeeper(self) -> None:
        self.znodes = TreeZnodes()
        self._patch.setattr(self.znodes, "commit", self._counted(self.znodes.commit))

    def prepare(self, dies_at: int = 0) -> None:
        """Run it; it dies before this write to a file or to ZooKeeper (0: never)."""
        self.writes, self._dies_at = 0, dies_at
        containers.prepare()

    def _counted(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*words: Any, **more: Any) -> Any:
            self.writes += 1
            if self.writes == self._dies_at:
                raise Killed
            return write(*words, **more)

        return counted

    def text(self, *parts: str) -> str:
        return self.directory.joinpath(*parts).read_text()

    def password(self, user: str) -> str:
        return str(json.loads(self.text("authority", "passwords.json"))[user])

    def logs_in(self, user: str, password: str) -> bool:
        """Whether ZooKeeper's credential of the user is of this password."""
        znode = self.znodes.read([f"/config/users/{user}"])[0]
        assert znode is not None
        stored = configs.decode(znode.data)[MECHANISM]
        salt, _, rest = stored.removeprefix("salt=").partition(",")
        iterations = int(rest.rpartition("iterations=")[2])
        return stored == credential(MECHANISM, password, iterations, base64.b64decode(salt))

    def require_agreement(self) -> None:
        authority = x509.load_pem_x509_certificate(self.text("public", "ca.pem").encode())
        for name in containers.BROKERS:
            own, above = x509.load_pem_x509_certificates(self.text(name, "security", "key.pem").encode())
            own.verify_directly_issued_by(authority)
            assert above == authority
            lines = self.text(name, "security", "server.properties").splitlines()
            login = jaas.parse(lines[-1].partition("sasl.jaas.config=")[2]).options
            assert self.logs_in(login["username"], login["password"])
            assert f'password="{self.password("admin")}"' in self.text(name, "security", "admin.properties")
        connection = json.loads(self.text("airflow", "connections.json"))["logyard_default"]
        assert self.logs_in(connection["login"], connection["password"])
        assert all(self.logs_in(user, self.password(user)) for user in USERS)
        assert self.password("spark") in self.text("spark", "spark-defaults.conf")
        assert self.text("postgres", "password") == self.password("postgres")
        assert f":{self.password('postgres')}@" in self.text("airflow", "sql_alchemy_conn")


@pytest.fixture
def volumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Volumes:
    monkeypatch.chdir(Path(__file__).resolve().parents[3])  # as in the image
    return Volumes(tmp_path, monkeypatch)


def test_it_may_die_before_each_write(volumes: Volumes, tmp_path_factory: pytest.TempPathFactory) -> None:
    volumes.prepare()
    assert volumes.writes > 20
    for write in range(1, volumes.writes + 1):
        with pytest.MonkeyPatch.context() as patch:
            other = Volumes(tmp_path_factory.mktemp("volumes"), patch)
            with pytest.raises(Killed):
                other.prepare(write)
            other.prepare()
            other.require_agreement()


def test_a_second_one_writes_nothing(volumes: Volumes) -> None:
    volumes.prepare()
    volumes.prepare()
    assert volumes.writes == 0


def test_what_an_operator_has_changed_in_the_cluster_stays(volumes: Volumes) -> None:
    volumes.prepare()
    changed = {"version": 1, "config": {MECHANISM: credential(MECHANISM, "changed", 4096, b"salt" * 6)}}
    znode = volumes.znodes.read(["/config/users/admin"])[0]
    assert znode is not None
    volumes.znodes.commit([SetData("/config/users/admin", json.dumps(changed).encode(), znode.version)])
    volumes.prepare()
    assert volumes.logs_in("admin", "changed")


def test_a_password_that_was_removed_is_made_anew(volumes: Volumes) -> None:
    volumes.prepare()
    path = volumes.directory / "authority" / "passwords.json"
    passwords = json.loads(path.read_text())
    old = passwords.pop("admin")
    path.write_text(json.dumps(passwords))
    volumes.prepare()
    assert volumes.password("admin") != old
    volumes.require_agreement()


@pytest.mark.parametrize("lost", ["authority", "public", "broker2", "airflow"])
def test_a_volume_that_is_lost_is_filled_again(lost: str, volumes: Volumes) -> None:
    volumes.prepare()
    for path in sorted((volumes.directory / lost).rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    volumes.prepare()
    volumes.require_agreement()


def test_zookeepers_volumes_are_lost(volumes: Volumes) -> None:
    volumes.prepare()
    volumes.lose_zookeeper()
    volumes.prepare()
    volumes.require_agreement()
