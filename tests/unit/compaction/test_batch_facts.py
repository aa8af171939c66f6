from pathlib import Path

import pytest

from logyard.broker.compaction import batch_facts
from logyard.broker.errors import CorruptData
from logyard.broker.records.header import iter_headers
from tests.support.batches import CONTROL, TRANSACTIONAL, Rec, batch, marker

# What Spark executors are shipped of this package: they have no C record code.
SHIPPED = ("batch_facts", "decision", "decision_format", "offset_set", "ranges", "rewrite", "transactions")


@pytest.mark.parametrize("commit", [True, False])
def test_the_type_of_a_marker(commit: bool) -> None:
    data = memoryview(marker(7, 5, commit=commit).encode())
    ((_, header),) = iter_headers(data)
    found = batch_facts.batch_facts(header, data)
    assert (found.base_offset, found.last_offset, found.producer_id, found.marker_type) == (7, 7, 5, int(commit))


def test_a_data_batch_is_not_opened_and_a_control_record_without_a_type_is_corrupt() -> None:
    data = memoryview(batch([Rec(0, b"k", b"v")], codec=3).encode())
    ((_, header),) = iter_headers(data)
    assert batch_facts.batch_facts(header, data).marker_type is None
    for key in (None, b"abc"):
        data = memoryview(batch([Rec(0, key, b"v")], flags=CONTROL | TRANSACTIONAL, producer_id=1).encode())
        ((_, header),) = iter_headers(data)
        with pytest.raises(CorruptData, match="control batch at offset 0"):
            batch_facts.batch_facts(header, data)


def test_nothing_that_is_shipped_needs_the_c_record_code() -> None:
    package = Path(batch_facts.__file__).parent
    for name in SHIPPED:
        source = (package / f"{name}.py").read_text()
        for needs in (
            "records import decode",
            "records.decode",
            "records.batch",
            "compaction.passes",
            "compaction.dirty_keys",
        ):
            assert needs not in source, f"{name} imports {needs}"
