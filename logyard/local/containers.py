"""Makes what the services of docker-compose.yaml keep secret, once, and the brokers' users in ZooKeeper.

Run by the service `prepare`, before all others, as root: each service gets what it needs in a volume that the others do
not see. The authority's key stays in the volume of `prepare`. What is there already is kept.
"""

import base64
import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from logyard.admin.errors import LogyardError
from logyard.admin.ports import EnsembleUnreachable
from logyard.admin.zookeeper.znodes import KazooZnodes, make_chroot
from logyard.local import files
from logyard.local.authority import Authority
from logyard.local.errors import LocalError
from logyard.local.scram_users import MECHANISM, PROTOCOL, client_keys, kept, login_module, write_credentials

OWN = Path("/prepare")
BROKERS = ("broker1", "broker2", "broker3")
AIRFLOW, SPARK, POSTGRES, PUBLIC = (OWN / name for name in ("airflow", "spark", "postgres", "public"))
USER_ID = 1000  # of the image's user, who runs everything of ours
ZOOKEEPER = "zookeeper1:2181,zookeeper2:2181,zookeeper3:2181/logyard"
PATIENCE_S = 300.0
CA = "/run/logyard/ca.pem"  # where brokers, Airflow and Spark see the authority's certificate


def main() -> int:
    with files.locked(OWN / "authority" / ".lock"):  # somebody may start a second one by hand
        prepare()
    print("prepare: ready")
    return 0


def prepare() -> None:
    """Write everything that is not there yet. It may be killed at any time, and goes on when it is started again.

    Raises LocalError, LogyardError, OSError.
    """
    authority = Authority(OWN / "authority", "Logyard compose authority")
    passwords = kept(OWN / "authority" / "passwords.json", ("admin", "broker", "airflow", "ui", "postgres", "spark"))
    write(PUBLIC / "ca.pem", authority.certificate.read_text(), 0o644)
    for name in BROKERS:
        issued = authority.issue(name, (name, "localhost", "127.0.0.1"))
        write(OWN / name / "security" / "key.pem", issued.pem.read_text())
        write(OWN / name / "security" / "server.properties", broker_properties(passwords["broker"]))
        write(
            OWN / name / "security" / "admin.properties",
            properties(client_keys(f"{name}:9092", "admin", passwords["admin"], CA)),
        )
    of_airflow(passwords)
    write(SPARK / "spark-defaults.conf", spark_defaults(passwords["spark"]))
    write(POSTGRES / "password", passwords["postgres"], 0o444)  # only that image's user sees the volume
    for top in (*(OWN / name for name in BROKERS), AIRFLOW, SPARK, PUBLIC):
        give(top)
    write_users({name: passwords[name] for name in ("admin", "broker", "airflow")})


def of_airflow(passwords: Mapping[str, str]) -> None:
    """Write what Airflow's services share: keys, the database's address, connections, the UI's user."""
    keys = kept(OWN / "authority" / "airflow.json", ("fernet", "jwt_secret", "secret_key"))
    fernet = base64.urlsafe_b64encode(keys["fernet"].encode()[:32]).decode()
    write(AIRFLOW / "fernet_key", fernet)
    write(AIRFLOW / "jwt_secret", keys["jwt_secret"])
    write(AIRFLOW / "secret_key", keys["secret_key"])
    database = f"postgresql+psycopg2://airflow:{passwords['postgres']}@postgres/airflow"
    write(AIRFLOW / "sql_alchemy_conn", database)
    write(AIRFLOW / "passwords.json", json.dumps({"admin": passwords["ui"]}))
    connections = {
        "logyard_default": {
            "conn_type": "logyard",
            "host": ",".join(f"{name}:9092" for name in BROKERS),
            "login": "airflow",
            "password": passwords["airflow"],
            "extra": {
                "zookeeper": ZOOKEEPER,
                "security_protocol": PROTOCOL,
                "sasl_mechanism": MECHANISM,
                "ssl_cafile": CA,
            },
        },
        "spark_default": {
            "conn_type": "spark",
            "host": "spark://spark-master",
            "port": 7077,
            "extra": {"deploy-mode": "client", "spark-binary": "spark-submit"},
        },
    }
    write(AIRFLOW / "connections.json", json.dumps(connections, indent=2))


def broker_properties(password: str) -> str:
    """Return server.properties: what all brokers share, and the password of their user."""
    shared = (Path("docker") / "server.properties").read_text()  # the image's working directory
    return f"{shared}listener.name.internal.{MECHANISM.lower()}.sasl.jaas.config={login_module('broker', password)}\n"


def properties(keys: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in keys.items())


def spark_defaults(secret: str) -> str:
    """Return Spark's settings: nobody without the secret submits or listens, and all traffic is encrypted."""
    keys = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secret,
        "spark.network.crypto.enabled": "true",
    }
    return "".join(f"{key} {value}\n" for key, value in keys.items())


def write_users(passwords: Mapping[str, str]) -> None:
    """Give users credentials before the first broker starts. Raises EnsembleUnreachable, LocalError.

    A password that this volume has not given before replaces what ZooKeeper has: that is of another volume, which is
    gone, or of a password that was removed here to get a new one. What somebody has changed in the cluster stays.
    """
    path = OWN / "authority" / "given.json"
    given = files.read_json(path, {})
    digests = {name: hashlib.sha256(password.encode()).hexdigest() for name, password in passwords.items()}
    client = connected(time.monotonic() + PATIENCE_S)
    try:
        write_credentials(client, passwords, [name for name in passwords if given.get(name) != digests[name]])
    finally:
        client.close()
    write(path, json.dumps(digests, indent=2))


def connected(deadline: float) -> KazooZnodes:
    """Wait for the ensemble, which starts at the same time. Raises EnsembleUnreachable after the deadline."""
    while True:
        try:
            make_chroot(ZOOKEEPER)
            return KazooZnodes(ZOOKEEPER)
        except EnsembleUnreachable:
            if time.monotonic() >= deadline:
                raise
            print("prepare: waiting for ZooKeeper", flush=True)
            time.sleep(1)


def write(path: Path, text: str, mode: int = files.PRIVATE) -> None:
    """Write a file, unless it has that text already: a service that runs reads it, and it would be root's first."""
    if not path.exists() or path.read_text() != text:
        files.write_text(path, text, mode, is_durable=True)


def give(top: Path) -> None:
    """Make the image's user the owner of a volume and of what `prepare` has written there."""
    os.chown(top, USER_ID, USER_ID)
    for path in [*top.glob("*"), *top.glob("security/*")]:
        if path.lstat().st_uid != USER_ID:
            os.chown(path, USER_ID, USER_ID, follow_symlinks=False)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (LogyardError, LocalError, OSError) as error:
        sys.exit(f"prepare: {error}")
