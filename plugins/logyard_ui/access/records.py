"""Who may look at records, what is hidden from them, and the entry in Airflow's audit log."""

import json
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails

from logyard.operators.airflow_names import conf
from logyard.operators.contents.masks import Fields, fields_of, read_rules, shown_to_all
from logyard.operators.hooks.cluster import CONFIG_SECTION
from logyard.plugins.logyard_ui.access.connections import of_team, team_of

EVENT = "logyard_records"


def may_read(conn_id: str, user: Any) -> bool:
    """Whether the user may read the connection in Airflow, and so could read topics by it, or `[logyard] page_records`
    shows its records to everybody. A team's connection is never shown to everybody."""
    team = team_of(conn_id)
    details = ConnectionDetails(conn_id=conn_id, **of_team(team))
    if get_auth_manager().is_authorized_connection(method="GET", details=details, user=user):
        return True
    return team is None and shown_to_all(conf.get(CONFIG_SECTION, "page_records", fallback="") or "", conn_id)


def hidden_from(user: Any, topic: str) -> Fields | None:
    """What of the topic's records is hidden from the user. Raises BadSettings: then nothing may be shown."""
    rules = read_rules(conf.get(CONFIG_SECTION, "page_record_masks", fallback="") or "")
    return fields_of(rules, topic, roles_of(user))


def roles_of(user: Any) -> list[str]:
    """The names of the user's roles, as far as the auth manager has roles; without any, every rule holds."""
    one, several = getattr(user, "role", None), getattr(user, "roles", None) or ()
    named = [getattr(role, "name", role) for role in (*([one] if one else ()), *several)]
    return [str(name) for name in named]


def note(user: Any, looked: dict[str, Any]) -> None:
    """Write into Airflow's audit log who looks at what. Blocks: writes to Airflow's database."""
    from airflow.models.log import Log
    from airflow.utils.session import create_session

    entry = Log(
        event=EVENT, owner=str(user.get_id()), owner_display_name=str(user.get_name()), extra=json.dumps(looked)
    )
    with create_session(scoped=False) as session:
        session.add(entry)
