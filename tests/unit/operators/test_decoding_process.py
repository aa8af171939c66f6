"""What the decoding process dies of, and what is said of a record then: only what is its own fault, or its schema's."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from logyard.admin.schema_registry import SchemaRegistry
from logyard.operators.contents.decoding import decode
from logyard.operators.contents.schemas.decoder import Decoder
from logyard.operators.contents.schemas.fetching import Registry
from logyard.operators.contents.schemas.problems import RegistryAway, Undecoded
from logyard.operators.contents.schemas.process import DecodingProcess
from logyard.operators.contents.schemas.reader import LACKING_S, SchemaReader
from tests.support.schema_registry import Served, framed, registry

TEXT: dict[str, Any] = {"schema": '"string"'}
ABC = framed(1, b"\x06abc")


@pytest.fixture
def served() -> Iterator[Served]:
    with registry({1: TEXT, 4: {"schema": "{}", "schemaType": "JSON"}}) as found:
        yield found


@pytest.fixture
def patient() -> Iterator[Decoder]:
    """As tasks have it."""
    made = Decoder(answer_s=20.0, tries=2)
    yield made
    made.close()


def _pid(decoder: Decoder) -> int:
    assert decoder.process is not None
    return decoder.process.pid


def test_a_process_that_others_ended_is_begun_again(served: Served) -> None:
    decoder = Decoder(answer_s=20.0)
    try:
        by_schema = decoder.by(SchemaRegistry(served.url))
        assert by_schema(ABC) == ("avro", "abc")
        os.kill(_pid(decoder), signal.SIGKILL)
        os.waitid(os.P_PID, _pid(decoder), os.WEXITED | os.WNOWAIT)
        assert by_schema(ABC) == ("avro", "abc")
    finally:
        decoder.close()


def test_a_record_is_not_at_fault_for_a_process_that_ends_once(served: Served, patient: Decoder) -> None:
    served.hang_s = 30.0

    def end_it() -> None:
        while not served.asked:
            time.sleep(0.01)
        os.kill(_pid(patient), signal.SIGKILL)
        served.hang_s = 0.0  # the next one is answered

    killer = threading.Thread(target=end_it)
    killer.start()
    assert patient.by(SchemaRegistry(served.url))(ABC) == ("avro", "abc")
    killer.join(10)
    assert len(served.asked) == 2


@pytest.mark.parametrize("python", ["/nowhere/python", "/bin/false"])
def test_a_process_that_does_not_begin_is_no_records_fault(
    python: str, served: Served, patient: Decoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", python)
    with pytest.raises(RegistryAway, match="the decoding process does not begin"):
        patient.by(SchemaRegistry(served.url))(ABC)


def test_a_registry_that_sends_a_byte_now_and_then_is_no_records_fault(served: Served) -> None:
    decoder = Decoder(answer_s=4.0, tries=2)
    served.drip = True
    try:
        with pytest.raises(RegistryAway, match="not there in time"):
            decoder.by(SchemaRegistry(served.url))(ABC)
    finally:
        decoder.close()


def test_a_record_that_is_nested_too_deep_for_its_reader_is_said_so(served: Served, patient: Decoder) -> None:
    """The process has less on its stack than a thread of a server."""
    data = framed(4, b"[" * 960 + b"]" * 960)

    def at_depth(left: int) -> Any:
        return at_depth(left - 1) if left else decode(data, None, patient.by(SchemaRegistry(served.url)))

    assert "nested too deep" in at_depth(150).problem


def test_a_task_decodes_any_number_of_schemas() -> None:
    decoder = Decoder(answer_s=20.0)
    with registry(dict.fromkeys(range(1, 260), TEXT)) as served:
        by_schema = decoder.by(SchemaRegistry(served.url), None)
        try:
            found = [by_schema(framed(number, b"\x06abc")) for number in range(1, 260)]
        finally:
            decoder.close()
    assert found == [("avro", "abc")] * 259


def test_what_it_began_and_wrote_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that runs when the process is killed."""
    (tmp_path / "grpc_tools").mkdir()
    (tmp_path / "grpc_tools" / "__init__.py").touch()
    (tmp_path / "grpc_tools" / "protoc.py").write_text(
        f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    with registry({1: {"schema": "message A {}", "schemaType": "PROTOBUF"}}) as served:
        process = DecodingProcess()
        head = json.dumps({"registry": {"url": served.url}, "schema": 1, "patience_s": 60}).encode()
        question = len(head).to_bytes(8, "big") + head + b"\x00"

        def ask() -> None:
            with pytest.raises((EOFError, OSError)):
                process.ask(question, 60)

        asking = threading.Thread(target=ask)
        asking.start()
        until = time.monotonic() + 30
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            assert time.monotonic() < until
            time.sleep(0.02)
        folder, compiler = Path(process.folder), int((tmp_path / "pid").read_text())
        assert list(folder.iterdir())
        os.kill(process.pid, signal.SIGKILL)  # it cannot clean up by itself
        asking.join(10)
        process.end()
    assert not folder.exists()
    until = time.monotonic() + 10
    while Path(f"/proc/{compiler}/cmdline").exists() and Path(f"/proc/{compiler}/cmdline").read_bytes():
        assert time.monotonic() < until, "the compiler runs on"
        time.sleep(0.02)


def test_its_time_of_the_cpu_ends_it_where_its_parent_is_gone() -> None:
    code = "from logyard.operators.contents.schemas import child; child.limit_cpu(-9)\nwhile True: pass"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == -signal.SIGXCPU


def test_a_schema_that_is_registered_later_is_found_then() -> None:
    now = [0.0]
    schemas: dict[int, dict[str, Any]] = {}
    with registry(schemas) as served:
        where, reader = SchemaRegistry(served.url), SchemaReader(lambda: now[0])
        with pytest.raises(Undecoded, match="schema 1 is not there"):
            reader.reader(where, 1, 5.0)
        served.more["/schemas/ids/1"] = TEXT
        with pytest.raises(Undecoded, match="schema 1 is not there"):
            reader.reader(where, 1, 5.0)
        assert served.asked == ["/schemas/ids/1"]  # not at every record
        now[0] += LACKING_S
        kind, read = reader.reader(where, 1, 5.0)
        assert (kind, read(b"\x06abc")) == ("avro", "abc")


def test_a_registry_that_cannot_be_used_takes_no_other_along() -> None:
    reader = SchemaReader()
    with registry({1: TEXT, 2: TEXT}) as served:
        where = SchemaRegistry(served.url)
        reader.reader(where, 1, 5.0)
        with pytest.raises(RegistryAway, match="schema_registry_cafile cannot be used"):
            reader.reader(SchemaRegistry("https://other", cafile="/no/such/file"), 1, 5.0)
        kind, read = reader.reader(where, 2, 5.0)
        assert (kind, read(b"\x06abc")) == ("avro", "abc")


@pytest.mark.parametrize("url", ["http://a..b", f"http://{'x' * 70}", "http://xn--", "http://h\x7f"])
def test_an_address_that_is_none_says_nothing_of_a_schema(url: str) -> None:
    with pytest.raises(RegistryAway):
        Registry(SchemaRegistry(url)).schema(1)


@pytest.mark.parametrize("references", [5, {"name": "x"}, [5]])
def test_references_that_are_none_are_told(references: Any) -> None:
    with (
        registry({1: TEXT | {"references": references}}) as served,
        pytest.raises(Undecoded, match="its schema's references cannot be read"),
    ):
        Registry(SchemaRegistry(served.url)).schema(1)


def test_a_404_of_another_server_says_nothing_of_a_schema(served: Served) -> None:
    served.raw, served.status = b"<html>no such page</html>", 404
    with pytest.raises(RegistryAway, match="status 404"):
        Registry(SchemaRegistry(served.url)).schema(1)


def test_an_answer_that_was_spoilt_on_its_way_says_nothing_of_a_schema(served: Served) -> None:
    served.raw, served.encoding = b"this is no gzip", "gzip"
    with pytest.raises(RegistryAway):
        Registry(SchemaRegistry(served.url)).schema(1)


def test_why_a_schema_cannot_be_used_is_said_in_short(patient: Decoder) -> None:
    """It is shown with each record, and a schema may have a name of a megabyte."""
    long = "a" * 900_000
    odd: dict[int, dict[str, Any]] = {
        1: {"schema": json.dumps(f"b {long}\n\nc")},
        2: {"schema": '"string"', "references": [{"name": "x", "subject": long[:60_000], "version": 1}]},
    }
    with registry(odd) as served:
        for number in odd:
            with pytest.raises(Undecoded) as raised:
                patient.by(SchemaRegistry(served.url))(framed(number, b"x"))
            assert len(str(raised.value)) <= 300
            assert "\n" not in str(raised.value)
