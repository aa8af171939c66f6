"""An Iceberg catalog's properties from an Airflow connection, as settings of the export job's `--catalog` file.

Types of connections:
    iceberg    as the provider apache-airflow-providers-apache-iceberg defines it, which is not needed: a REST catalog;
               host: its address, login and password: a client's id and secret; extra: further properties
    generic    extra: PyIceberg's own names: {"type": "sql", "uri": "postgresql+psycopg2://…"}
A form may name any connection: a generic one that says no kind of catalog belongs to something else.
"""

import re
from collections.abc import Mapping

from logyard.admin.settings import BadSettings, has_login
from logyard.operators.store_connection import StoreConnection

# By one of these PyIceberg knows which kind of catalog it is.
_KINDS = ("type", "uri", "py-catalog-impl")
# `header.…` is sent with each request to a REST catalog, such as its Authorization.
_SECRET = re.compile(r"credential|token|secret|password|key|sas|auth|header", re.IGNORECASE)


def settings_of_catalog(connection: StoreConnection) -> dict[str, str]:
    """Return the catalog's properties; raises BadSettings, which names no value."""
    extra = {name: str(value) for name, value in connection.extra_dejson.items() if value not in (None, "")}
    if connection.conn_type == "generic":
        if not extra.keys() & set(_KINDS):
            raise BadSettings(
                f"connection {connection.conn_id} is none of an Iceberg catalog: its extra names none of "
                f"{', '.join(_KINDS)}"
            )
        return extra
    if connection.conn_type != "iceberg":
        raise BadSettings(
            f"connection {connection.conn_id}: its type is {connection.conn_type}, not one of iceberg, generic"
        )
    if not connection.host:
        raise BadSettings(f"connection {connection.conn_id}: its host is the catalog's address: https://HOST/PATH")
    found = {"type": "rest", "uri": connection.host}
    if connection.password:
        found["credential"] = f"{connection.login}:{connection.password}" if connection.login else connection.password
    return found | extra


def secrets_of(settings: Mapping[str, str]) -> list[str]:
    """Return the values that are kept out of logs: by their names, or because they are addresses with passwords."""
    return [v for name, v in settings.items() if _SECRET.search(name) or has_login(v)]
