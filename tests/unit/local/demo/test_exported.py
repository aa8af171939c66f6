from pathlib import Path

import pandas as pd
import pytest

from logyard.local.demo import checks, exported
from logyard.local.errors import LocalError

ROWS = pd.DataFrame([(0, 1, b"a", b"2"), (0, 0, None, b"1")], columns=checks.COLUMNS)


def test_all_files_are_read_in_the_order_of_offsets(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="no Parquet file was exported"):
        exported.read(tmp_path)
    (tmp_path / "t").mkdir()
    ROWS.to_parquet(tmp_path / "t" / "one.parquet")
    found = exported.read(tmp_path)
    assert found["offset"].tolist() == [0, 1]
    exported.require(found, found)
    with pytest.raises(LocalError, match="1 missing"):
        exported.require(found, found.iloc[1:])


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 torn")
    with pytest.raises(LocalError, match="cannot be read: ") as raised:
        exported.read(tmp_path)
    assert "\n" not in str(raised.value)
