"""Which URLs name an object store, and what is refused."""

import pytest

from logyard.spark_jobs.objects.urls import BadUrl, is_object_store, parse


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("s3://bucket/exports/flights/", "s3://bucket/exports/flights"),
        ("s3a://bucket/x", "s3://bucket/x"),
        ("S3://bucket/x", "s3://bucket/x"),
        ("gs://bucket/x", "gs://bucket/x"),
        ("az://container/x", "az://container/x"),
        ("abfss://c@account.dfs.core.windows.net/x", "abfss://c@account.dfs.core.windows.net/x"),
        ("wasbs://c@account.blob.core.windows.net/x", "abfss://c@account.dfs.core.windows.net/x"),
    ],
)
def test_urls_of_stores(given: str, url: str) -> None:
    assert is_object_store(given)
    assert parse(given).url == url


@pytest.mark.parametrize("path", ["/data/s3", "s3:/bucket/x", "exports:2026", "hdfs://host/x", "file:///x", "s3"])
def test_what_is_no_store(path: str) -> None:
    assert not is_object_store(path)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("s3://bucket", "name a bucket and a folder"),
        ("s3:///x", "name a bucket and a folder"),
        ("s3://bucket/a/../b", "'.' or '..'"),
        ("s3://bucket/a//b", "empty"),
        ("az://container/x?sig=SECRET", "no '?'"),
        ("s3://KEY:SECRET@bucket/x", "credentials do not belong in a URL"),
        ("s3://KEY:SECRET/SECRET@bucket/x", "credentials do not belong in a URL"),
        ("s3://KEY:SECRET/SECRET@bucket/x?y", "no '?'"),
        ("s3://[KEY:SECRET@bucket/x", "cannot be read as a URL"),
        ("s3://[bucket/x", "cannot be read as a URL"),
        ("s3://KEY@bucket/x", "credentials do not belong in a URL"),
        ("abfss://c:SECRET@account.dfs.core.windows.net/x", "credentials"),
        ("abfss://c@nowhere/x", "write abfss://CONTAINER@ACCOUNT"),
    ],
)
def test_what_is_refused(url: str, words: str) -> None:
    with pytest.raises(BadUrl, match=words) as refused:
        parse(url)
    assert "SECRET" not in str(refused.value)
