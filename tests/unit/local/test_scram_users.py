"""Passwords that are kept, and what client files say."""

import json
import stat
from pathlib import Path

from logyard.local import scram_users
from logyard.login import jaas


def test_secrets_are_kept_and_those_that_lack_are_made(tmp_path: Path) -> None:
    path = tmp_path / "passwords.json"
    first = scram_users.kept(path, ("admin", "broker"))
    assert first["admin"] != first["broker"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    more = scram_users.kept(path, ("admin", "broker", "jobs"))
    assert {name: more[name] for name in first} == first
    assert json.loads(path.read_text()) == more
    written = path.stat().st_mtime_ns
    assert scram_users.kept(path, ("jobs",)) == more
    assert path.stat().st_mtime_ns == written


def test_a_client_file_leads_a_user_in() -> None:
    keys = scram_users.client_keys("host:1", "ann", 'a"b', "/ca.pem")
    assert (keys["security.protocol"], keys["sasl.mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    assert jaas.parse(keys["sasl.jaas.config"]).options == {"username": "ann", "password": 'a"b'}
