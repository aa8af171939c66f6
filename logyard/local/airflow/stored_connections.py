"""The connections of a local platform in Airflow's database, where *Admin → Connections* shows them.

A connection is made where there is none, and follows the platform's addresses for as long as it is as this module
wrote it. What somebody has edited stays. `Airflow.start` runs this file as a program of its own, in Airflow's
environment: it reads the connections from AIRFLOW_CONN_… and writes to HOME/connections.json which of them are ours.
"""

import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from logyard.local import files

PREFIX = "AIRFLOW_CONN_"
_TRIES, _PAUSE_S = 5, 1.0
_FIELDS = ("conn_type", "description", "host", "login", "password", "schema", "port")


@dataclass(frozen=True, slots=True)
class Decision:
    """What is written, what somebody has edited (`edited`), and the digests to remember: what is there and what
    is written, since the database has either if this program is killed."""

    write: tuple[str, ...]
    edited: tuple[str, ...]
    digests: Mapping[str, Sequence[str]]


def digest(connection: Mapping[str, Any]) -> str:
    """Return a digest of everything that a person can edit; the order of the extra's fields does not count."""
    extra = connection.get("extra") or {}
    if isinstance(extra, str):
        try:
            extra = json.loads(extra)
        except ValueError:
            extra = {"": extra}
    shown = [connection.get(name) or None for name in _FIELDS]
    return hashlib.sha256(json.dumps([*shown, extra], sort_keys=True).encode()).hexdigest()


def decide(wanted: Mapping[str, str], stored: Mapping[str, str], remembered: Mapping[str, Sequence[str]]) -> Decision:
    """Decide about each connection by digests: as it should be, as Airflow has it, and as it was written before."""
    edited = tuple(name for name, now in stored.items() if now not in (*remembered.get(name, ()), wanted[name]))
    write = tuple(name for name, digest in wanted.items() if name not in edited and stored.get(name) != digest)
    digests = {
        name: tuple(remembered.get(name, ()) if name in edited else dict.fromkeys([stored.get(name, digest), digest]))
        for name, digest in wanted.items()
    }
    return Decision(write, edited, digests)


def state_file(home: Path) -> Path:
    """Return the file with the digests that were written last, and the ids that were edited since."""
    return home / "connections.json"


def edited_ids(home: Path) -> list[str]:
    """Return the connections that somebody has edited, as the last run found them."""
    return list(files.read_json(state_file(home), {}).get("edited", []))


def wanted_of(variables: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the connections among environment variables: id → fields, of which `extra` is an object."""
    return {
        name.removeprefix(PREFIX).lower(): json.loads(text)
        for name, text in variables.items()
        if name.startswith(PREFIX)
    }


def main() -> None:
    from sqlalchemy.exc import OperationalError

    for left in reversed(range(_TRIES)):
        try:
            _write(Path(os.environ["AIRFLOW_HOME"]), wanted_of(os.environ))
            break
        except OperationalError:  # SQLite is locked for a moment where the platform runs already
            if not left:
                raise
            time.sleep(_PAUSE_S)


def _write(home: Path, wanted: Mapping[str, Mapping[str, Any]]) -> None:
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session
    from sqlalchemy import select

    remembered = files.read_json(state_file(home), {}).get("written", {})
    with create_session(scoped=False) as session:
        ours = select(Connection).where(Connection.conn_id.in_(wanted))
        stored = {connection.conn_id: connection for connection in session.scalars(ours)}
        decision = decide(
            {name: digest(fields) for name, fields in wanted.items()},
            {name: digest(_fields(connection)) for name, connection in stored.items()},
            remembered,
        )
        # Before the commit, so that nothing of ours counts as edited.
        remember = {"written": dict(decision.digests), "edited": list(decision.edited)}
        files.write_json(state_file(home), remember, files.PRIVATE)
        for name in decision.write:
            connection = stored.get(name) or Connection(conn_id=name)
            fields = wanted[name]
            for field in _FIELDS:
                setattr(connection, field, fields.get(field))
            connection.set_extra(json.dumps(fields["extra"]) if fields.get("extra") else None)
            session.add(connection)


def _fields(connection: Any) -> dict[str, Any]:
    return {**{name: getattr(connection, name) for name in _FIELDS}, "extra": connection.extra}


if __name__ == "__main__":
    main()
