"""Users who log in by SASL_SSL with SCRAM: their passwords, what client files say, their credentials in ZooKeeper."""

import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from logyard.admin.configs import znodes as user_znodes
from logyard.admin.configs.entities import USERS, Entity
from logyard.admin.zookeeper.znodes import ZnodeClient
from logyard.local import files
from logyard.login import jaas

PROTOCOL, MECHANISM = "SASL_SSL", "SCRAM-SHA-512"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
ITERATIONS = 4096
PASSWORD_BYTES = 24


def kept(path: Path, names: Sequence[str]) -> dict[str, str]:
    """Return a secret for each name: those of the private file at `path`, new ones for names that it lacks.

    The file is on the disk before this returns. Raises LocalError if it is not JSON.
    """
    found: dict[str, str] = files.read_json(path, {})
    if missing := [name for name in names if name not in found]:
        found |= {name: secrets.token_urlsafe(PASSWORD_BYTES) for name in missing}
        files.write_text(path, json.dumps(found, indent=2) + "\n", files.PRIVATE, is_durable=True)
    return found


def login_module(user: str, password: str) -> str:
    """Return the value of `sasl.jaas.config` with which the user logs in."""
    return jaas.written(MODULE, {"username": user, "password": password})


def client_keys(bootstrap: str, user: str, password: str, authority: str) -> dict[str, str]:
    """Return the properties of a client, for --command-config of our tools and Kafka's."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": PROTOCOL,
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": login_module(user, password),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority,
    }


def write_credentials(client: ZnodeClient, passwords: Mapping[str, str], replaced: Sequence[str] = ()) -> None:
    """Give users credentials, unless they have some; those of `replaced` are replaced.

    The first broker may start later. Raises EnsembleUnreachable.
    """
    for user, password in passwords.items():
        entity = Entity((USERS,), (user,))
        if user in replaced or MECHANISM not in user_znodes.describe(client, entity)[0][1]:
            user_znodes.alter(client, entity, {MECHANISM: f"iterations={ITERATIONS},password={password}"}, ())
