"""A log directory whose meta.properties is empty or garbage: either kind of broker starts, and writes it anew."""

from pathlib import Path

import pytest

from tests.support import kafka

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("kind", ["O", "K"])
def test_a_meta_properties_that_says_nothing_is_written_anew(tmp_path: Path, kind: str) -> None:
    kafka.jars_or_skip()
    with kafka.running(tmp_path, kind, {"log.dirs": "one,two"}) as running:
        bad = tmp_path / "broker-0" / "two" / "meta.properties"
        for content in (b"", b"\xff\x00 garbage"):
            running.cluster.stop_broker(0)
            bad.write_bytes(content)
            running.cluster.start_broker(0)
            assert b"broker.id=0" in bad.read_bytes()
