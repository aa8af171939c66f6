"""A Kerberos realm of its own: MIT's KDC (Debian: krb5-kdc, krb5-user, and krb5-admin-server for kadmin.local).

with running_realm(tmp_path) as realm:
    realm.keytab("kafka/localhost")            # a file with a new key of that principal
    realm.environment                          # KRB5_CONFIG and the like, for processes
    with realm.inside("alice"):                # this process's GSSAPI clients log in as alice
        ...
The KDC listens on loopback. In this realm names of hosts are taken as they are given: DNS is not asked.
"""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from logyard.local.ports import free_port
from tests.support.needed import lacks

REALM = "LOGYARD.TEST"
TOOLS = {
    "krb5kdc": "krb5-kdc",
    "kdb5_util": "krb5-kdc",
    "kadmin.local": "krb5-admin-server",
    "kinit": "krb5-user",
}
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
_KRB5 = """\
[libdefaults]
 default_realm = {realm}
 dns_lookup_realm = false
 dns_lookup_kdc = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = 127.0.0.1:{port}
 }}
"""
_KDC = """\
[kdcdefaults]
 kdc_listen = 127.0.0.1:{port}
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {realm} = {{
  database_name = {directory}/principal
  key_stash_file = {directory}/stash
  acl_file = {directory}/acl
  max_life = 10h
 }}
[logging]
 kdc = FILE:{directory}/kdc.log
"""


def _missing() -> str | None:
    for tool, package in TOOLS.items():
        if shutil.which(tool, path=_PATH) is None:
            return f"{tool} is missing: install {package} (Debian's name) to test Kerberos"
    if find_spec("gssapi") is None:
        return "the package gssapi is missing: install libkrb5-dev and a C compiler, then `make setup`"
    return None


def skip_without_kerberos() -> None:
    """Skip the test where something is missing, fail it under LOGYARD_REQUIRE."""
    missing = _missing()
    if missing is not None:
        lacks(missing)


class Realm:
    """A running KDC and its principals."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.config = directory / "krb5.conf"
        self._kdc: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs to belong to this realm."""
        return {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf"),
            "KRB5RCACHENAME": f"dfl:{self.directory}/",
            "KRB5RCACHEDIR": str(self.directory),
        }

    @property
    def java_options(self) -> tuple[str, ...]:
        """The same for a JVM."""
        return (f"-Djava.security.krb5.conf={self.config}", "-Dsun.security.krb5.disableReferrals=true")

    def create(self) -> None:
        """Make the realm's files."""
        self.directory.mkdir(parents=True, exist_ok=True)
        names = {"realm": REALM, "port": self.port, "directory": self.directory}
        self.config.write_text(_KRB5.format(**names))
        (self.directory / "kdc.conf").write_text(_KDC.format(**names))
        (self.directory / "acl").write_text("")
        self._run("kdb5_util", "create", "-s", "-P", "of-no-use", "-r", REALM)

    def start(self) -> None:
        """Start the KDC; returns when it listens."""
        command = shutil.which("krb5kdc", path=_PATH) or "krb5kdc"
        with (self.directory / "krb5kdc.out").open("ab") as out:
            self._kdc = subprocess.Popen([command, "-n", "-r", REALM], env=self._full(), stdout=out, stderr=out)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise AssertionError(f"the KDC does not listen: {(self.directory / 'krb5kdc.out').read_text()}")

    def stop(self) -> None:
        """Stop the KDC; `start` starts it again."""
        if self._kdc is not None:
            self._kdc.terminate()
            self._kdc.wait(20)
            self._kdc = None

    def keytab(self, principal: str) -> Path:
        """Make the principal if it is not there, and return a file with a key of it."""
        path = self.directory / f"{principal.replace('/', '_')}.keytab"
        if not path.exists():
            self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
            self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {principal}")
            assert path.exists(), f"no keytab for {principal}"
        return path

    def jaas(self, principal: str, *, initiates_only: bool = False) -> str:
        """A value of sasl.jaas.config for that principal, of Java's and of ours."""
        more = "" if initiates_only else " storeKey=true"
        return (
            f"com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true{more} "
            f'keyTab="{self.keytab(principal)}" principal="{principal}@{REALM}";'
        )

    @contextmanager
    def inside(self, principal: str | None = None) -> Iterator[None]:
        """Have this process belong to the realm, with the tickets of a principal."""
        changed = dict(self.environment)
        if principal is not None:
            changed["KRB5_CLIENT_KTNAME"] = str(self.keytab(principal))
            changed["KRB5CCNAME"] = f"FILE:{self.directory}/{principal.replace('/', '_')}.tickets"
        before = {name: os.environ.get(name) for name in changed}
        os.environ.update(changed)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def _full(self) -> dict[str, str]:
        return {**os.environ, **self.environment, "PATH": _PATH}

    def _run(self, tool: str, *arguments: str) -> None:
        command = [shutil.which(tool, path=_PATH) or tool, *arguments]
        done = subprocess.run(command, env=self._full(), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{tool} {' '.join(arguments)}: {done.stdout}{done.stderr}"


@contextmanager
def running_realm(directory: Path) -> Iterator[Realm]:
    """A started realm, stopped at the end whatever happens."""
    skip_without_kerberos()
    realm = Realm(directory)
    realm.create()
    realm.start()
    try:
        yield realm
    finally:
        realm.stop()
