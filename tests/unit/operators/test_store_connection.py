"""Airflow connections of the providers' types become settings of an object store."""

from typing import Any

import pytest
from airflow.models import Connection

from logyard.admin.settings import BadSettings
from logyard.operators.store_connection import settings_of_store

pytestmark = pytest.mark.airflow


def connection(kind: str, **more: Any) -> Connection:
    return Connection(conn_id="lake", conn_type=kind, **more)


@pytest.mark.parametrize(
    ("given", "settings"),
    [
        (
            connection("aws", login="AKIA", password="p", extra={"region_name": "eu-west-1", "aws_session_token": "t"}),
            {"access_key_id": "AKIA", "secret_access_key": "p", "region": "eu-west-1", "session_token": "t"},
        ),
        (connection("aws", extra={"endpoint_url": "http://minio:9000"}), {"endpoint": "http://minio:9000"}),
        (
            connection(
                "aws", extra={"endpoint_url": "http://a", "service_config": {"s3": {"endpoint_url": "http://b"}}}
            ),
            {"endpoint": "http://b"},
        ),
        (connection("google_cloud_platform", extra={"key_path": "/k.json"}), {"service_account_path": "/k.json"}),
        (
            connection("google_cloud_platform", extra={"keyfile_dict": {"type": "service_account"}}),
            {"service_account_key": '{"type": "service_account"}'},
        ),
        (connection("wasb", login="account", password="k"), {"account_name": "account", "account_key": "k"}),
        (
            connection("wasb", host="account.blob.core.windows.net", extra={"sas_token": "s"}),
            {"account_name": "account", "sas_key": "s"},
        ),
        (
            connection("adls", host="https://account.x.net/", login="c", password="s", extra={"tenant_id": "t"}),
            {"tenant_id": "t", "client_id": "c", "client_secret": "s", "account_name": "account"},
        ),
        (connection("generic", extra={"region": "x", "timeout": "5m"}), {"region": "x", "timeout": "5m"}),
    ],
)
def test_what_a_connection_says(given: Connection, settings: dict[str, str]) -> None:
    assert settings_of_store(given) == settings


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (connection("http", login="u", password="hidden"), "its type is http, not one of aws, "),
        (connection("aws", password="hidden", extra={"role_arn": "arn:hidden"}), "role_arn is not read here"),
        (connection("wasb", extra={"connection_string": "hidden"}), "connection_string is not read here"),
    ],
)
def test_what_is_not_read_is_named_without_its_value(given: Connection, words: str) -> None:
    with pytest.raises(BadSettings, match=f"connection lake: {words}") as refused:
        settings_of_store(given)
    assert "hidden" not in str(refused.value)
