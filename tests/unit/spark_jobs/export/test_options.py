"""What an export's command line may ask for."""

import pytest

from logyard.spark_jobs.export.errors import ExportRefused
from logyard.spark_jobs.export.options import check_columns


def test_unknown_columns_are_named() -> None:
    with pytest.raises(ExportRefused, match="'ofset' does not exist"):
        check_columns(["offset", "ofset"])
