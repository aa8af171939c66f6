"""An object store's credentials from an Airflow connection, as settings of the export job's `--store` file.

The types that Airflow's providers define are read without these providers:
    aws                    login, password; extra: region_name, endpoint_url, aws_session_token
    google_cloud_platform  extra: key_path or keyfile_dict
    wasb, adls, azure_data_lake    login, password; extra: sas_token, or tenant_id with a client's login and secret
    generic                extra: the store's own names (docs/spark.md)
A connection without credentials leaves them to the environment and the machine's role, on driver and executors.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from logyard.admin.settings import BadSettings

# What needs the provider's own code, and would be missed in silence.
_UNREAD = ("role_arn", "profile_name", "assume_role_method", "credential_config_file", "connection_string")


class StoreConnection(Protocol):
    """What is read of an Airflow connection."""

    @property
    def conn_id(self) -> str: ...

    @property
    def conn_type(self) -> str | None: ...

    @property
    def host(self) -> str | None: ...

    @property
    def login(self) -> str | None: ...

    @property
    def password(self) -> str | None: ...

    @property
    def extra_dejson(self) -> dict[str, Any]: ...


def settings_of_store(connection: StoreConnection) -> dict[str, str]:
    """Return the store's settings; raises BadSettings, which names no value."""
    read = _TYPES.get(connection.conn_type or "")
    if read is None:
        known = ", ".join(_TYPES)
        raise BadSettings(f"connection {connection.conn_id}: its type is {connection.conn_type}, not one of {known}")
    unread = [name for name in _UNREAD if connection.extra_dejson.get(name)]
    if unread:
        raise BadSettings(
            f"connection {connection.conn_id}: {unread[0]} is not read here: give keys, or leave them out and give"
            " Spark's machines a role"
        )
    return {name: str(value) for name, value in read(connection).items() if value not in (None, "")}


def _s3(connection: StoreConnection) -> Mapping[str, Any]:
    extra = connection.extra_dejson
    service = extra.get("service_config") or {}
    return {
        "access_key_id": connection.login,
        "secret_access_key": connection.password,
        "session_token": extra.get("aws_session_token"),
        "region": extra.get("region_name"),
        "endpoint": (service.get("s3") or {}).get("endpoint_url") or extra.get("endpoint_url"),
    }


def _gcs(connection: StoreConnection) -> Mapping[str, Any]:
    extra = {name.removeprefix("extra__google_cloud_platform__"): v for name, v in connection.extra_dejson.items()}
    keyfile = extra.get("keyfile_dict")
    return {
        "service_account_path": extra.get("key_path"),
        "service_account_key": json.dumps(keyfile) if isinstance(keyfile, dict) else keyfile,
    }


def _azure(connection: StoreConnection) -> Mapping[str, Any]:
    extra = connection.extra_dejson
    tenant = extra.get("tenant_id")
    host = (connection.host or "").removeprefix("https://").strip("/")
    if tenant:
        client = {"tenant_id": tenant, "client_id": connection.login, "client_secret": connection.password}
        return {**client, "account_name": extra.get("account_name") or host.partition(".")[0]}
    return {
        "account_name": connection.login or host.partition(".")[0],
        "account_key": connection.password,
        "sas_key": extra.get("sas_token"),
    }


def _own_names(connection: StoreConnection) -> Mapping[str, Any]:
    return connection.extra_dejson


_TYPES: Mapping[str, Callable[[StoreConnection], Mapping[str, Any]]] = {
    "aws": _s3,
    "google_cloud_platform": _gcs,
    "wasb": _azure,
    "adls": _azure,
    "azure_data_lake": _azure,
    "generic": _own_names,
}
