"""The store's library: its settings, its errors, and that nothing secret is told."""

import json
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from logyard.spark_jobs.objects.store import ObjectStore, StoreFailed, Unclear, settings_of, without_secrets
from tests.support.counting_store import CountingStore

SECRET = "wJalrXUtnFEMI/K7MDENG"


@pytest.fixture
def deaf() -> Iterator[str]:
    """An address that nobody listens at."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def store(endpoint: str, **more: str) -> ObjectStore:
    settings = {
        "endpoint": endpoint,
        "access_key_id": "AKIAEXAMPLE",
        "secret_access_key": SECRET,
        "region": "us-east-1",
    }
    return ObjectStore("s3://bucket/x", settings | more)


def test_a_store_that_cannot_be_reached_is_unclear_at_once(deaf: str) -> None:
    with pytest.raises(Unclear, match=r"s3://bucket/x/key: .*error sending request"):
        store(deaf).create("key", b"content")
    with pytest.raises(Unclear):
        store(deaf).read_once("key")


def test_an_unknown_setting_is_named(deaf: str) -> None:
    with pytest.raises(StoreFailed, match="acess_key"):
        store(deaf, acess_key="x").create("key", b"")


def test_it_goes_to_executors_and_shows_no_secret(deaf: str) -> None:
    made = store(deaf)
    assert SECRET not in repr(made)
    again = pickle.loads(pickle.dumps(made))
    assert (again.url, again.settings) == (made.url, made.settings)
    with pytest.raises(Unclear) as failed:
        again.create("key", b"")
    assert SECRET not in f"{failed.value!r} {failed.getrepr(style='long')}".replace(repr(made.settings), "")


def test_no_error_tells_a_secret() -> None:
    said = f"PUT https://a.blob.core.windows.net/c/k?sv=1&sig={SECRET} failed for {SECRET}\nDebug source: {SECRET}"
    assert without_secrets(said, {"sas_key": SECRET}) == "PUT https://a.blob.core.windows.net/c/k failed for …"


def test_settings_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "store.json"
    path.write_text(json.dumps({"region": "eu-west-1", "virtual_hosted_style_request": True, "timeout": "30s"}))
    assert settings_of(str(path)) == {"region": "eu-west-1", "virtual_hosted_style_request": "true", "timeout": "30s"}


@pytest.mark.parametrize("content", [f'{{"secret": "{SECRET}"', f'["{SECRET}"]', f'{{"a": {{"b": "{SECRET}"}}}}'])
def test_a_file_that_is_wrong_is_named_and_not_quoted(content: str, tmp_path: Path) -> None:
    path = tmp_path / "store.json"
    path.write_text(content)
    with pytest.raises(StoreFailed, match=r"store\.json") as failed:
        settings_of(str(path))
    assert SECRET not in str(failed.value)


KEYS = [f"data/t/p é+&<'{number}.parquet" for number in range(1200)]


def test_many_objects_are_deleted_by_few_requests() -> None:
    with CountingStore() as server:
        server.objects |= {*(f"x/{key}" for key in KEYS), "x/other"}
        ObjectStore("s3://bucket/x", server.s3).delete(["data/gone", *KEYS])
        assert server.objects == {"x/other"}
        assert len(server.requests) == 2


def test_one_that_is_gone_does_not_keep_the_others() -> None:
    """Google Cloud Storage says that it is not there, and the library ends at the first that says so."""
    with CountingStore() as server:
        server.objects |= {*(f"x/{key}" for key in KEYS[:100]), "x/other"}
        ObjectStore("gs://bucket/x", server.gcs).delete(["data/gone", *KEYS[:100]])
        assert server.objects == {"x/other"}


def test_one_that_is_gone_has_no_more_asked_for_again_than_one_of_azures_requests() -> None:
    with CountingStore() as server:
        server.objects |= {*(f"x/{key}" for key in KEYS), "x/other"}
        ObjectStore("az://bucket/x", server.azure).delete(["data/gone", *KEYS])
        assert server.objects == {"x/other"}
        assert len(server.requests) == 5 + 256


def test_what_cannot_be_deleted_is_said_though_another_was_gone() -> None:
    with CountingStore() as server:
        server.objects |= {f"x/{key}" for key in KEYS[:9]}
        server.kept = {f"x/{KEYS[4]}"}
        with pytest.raises(StoreFailed, match=r"p é\+&<'4\.parquet"):
            ObjectStore("az://bucket/x", server.azure).delete(["data/gone", *KEYS[:9]])


def test_each_that_cannot_be_deleted_is_told_and_the_others_go() -> None:
    with CountingStore() as server:
        for url, settings in (("s3", server.s3), ("gs", server.gcs), ("az", server.azure)):
            server.objects |= {f"x/{key}" for key in KEYS[:300]}
            server.kept = {f"x/{KEYS[number]}" for number in (4, 280)}
            refused = ObjectStore(f"{url}://bucket/x", settings).delete_each(["data/gone", *KEYS[:300]])
            assert sorted(refused) == sorted([KEYS[4], KEYS[280]])
            assert all("403" in why or "AccessDenied" in why for why in refused.values())
            assert server.objects == server.kept


def test_a_store_that_refuses_all_is_not_asked_for_each() -> None:
    with CountingStore() as server:
        server.objects |= {f"x/{key}" for key in KEYS}
        server.kept = set(server.objects)
        with pytest.raises(StoreFailed, match="AccessDenied"):
            ObjectStore("s3://bucket/x", server.s3).delete_each(KEYS)
        assert len(server.requests) < 100


def test_each_of_many_objects_is_deleted_by_few_requests() -> None:
    with CountingStore() as server:
        server.objects |= {f"x/{key}" for key in KEYS}
        assert ObjectStore("s3://bucket/x", server.s3).delete_each(["data/gone", *KEYS]) == {}
        assert (server.objects, len(server.requests)) == (set(), 2)
