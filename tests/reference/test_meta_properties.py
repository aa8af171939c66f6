"""A log directory whose meta.properties cannot be read: either kind of broker starts without it."""

from pathlib import Path

import pytest

from tests.support import kafka

pytestmark = pytest.mark.timeout(600)

TWO_DIRECTORIES = {"log.dirs": "one,two"}


@pytest.mark.parametrize("kind", ["O", "K"])
def test_a_meta_properties_that_cannot_be_read_takes_its_directory_offline(tmp_path: Path, kind: str) -> None:
    kafka.jars_or_skip()
    with kafka.running(tmp_path, kind, TWO_DIRECTORIES) as running:
        for content in (b"", b"\xff\x00 garbage", b"version=7\nbroker.id=0\n"):
            running.cluster.stop_broker(0)
            kept = {}
            for name in ("one", "two"):
                path = tmp_path / "broker-0" / name / "meta.properties"
                kept[path] = path.read_bytes()
            bad = tmp_path / "broker-0" / "two" / "meta.properties"
            bad.write_bytes(content)
            running.cluster.start_broker(0)
            found = kafka.tool("log-dirs", "--bootstrap-server", running.bootstrap, "--describe")
            assert f'"logDir":"{bad.parent.parent / "one"}","error":null' in found.replace(": ", ":"), found
            assert bad.read_bytes() == content, "nobody writes over it"
            running.cluster.stop_broker(0)
            for path, before in kept.items():
                path.write_bytes(before)
            running.cluster.start_broker(0)
