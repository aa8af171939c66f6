"""The zip that executors get: enough to import every job, and nothing else."""

import re
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pyspark
import pytest

from logyard.spark_jobs import executors, shipping

# Imports every module of the jobs where nothing but the zip and the named distributions can be imported.
IMPORT_ALL = """
import importlib, sys, zipfile
from importlib import metadata

archive, allowed = sys.argv[1], set(sys.argv[2:])
# They need PyIceberg, which the driver alone has: `catalog.py` imports them, and says so where it is missing.
drivers = ("tables/catalog_commits.py", "tables/catalog_history.py")
owners = metadata.packages_distributions()

class Only:
    def find_spec(self, name, path=None, target=None):
        found = owners.get(name.split(".")[0])
        if found and not allowed & set(found) and not name.startswith("logyard"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Only())
for name in zipfile.ZipFile(archive).namelist():
    if name.startswith("logyard/spark_jobs/") and not name.endswith(("__main__.py", "__init__.py", *drivers)):
        module = importlib.import_module(name[:-3].replace("/", "."))
        assert module.__file__.startswith(archive), module.__file__
"""


def test_every_module_can_be_imported_from_the_zip_and_the_packed_libraries_alone(tmp_path: Path) -> None:
    made = tmp_path / "logyard-spark.zip"
    count = shipping.write_zip(made)
    names = zipfile.ZipFile(made).namelist()
    assert len(names) == count == len(set(names))
    assert all(name.startswith("logyard/") and name.endswith(".py") for name in names)
    for package in ("audit", "compact", "export", "export/schema", "data_source", "segments", "leases", "tables"):
        assert f"logyard/spark_jobs/{package}/__init__.py" in names
    for job in shipping.JOBS:
        assert f"logyard/spark_jobs/{job}/job.py" in names
    site = Path(pyspark.__file__).parents[1]
    environment = {"PYTHONPATH": f"{made}:{site}", "NUMBA_CACHE_DIR": str(tmp_path / "numba")}
    packed = {*shipping.LIBRARIES, *(required for name in shipping.LIBRARIES for required in requirements_of(name))}
    # Spark brings its own Python to executors, and what that needs.
    given = {"pyspark", "pyspark-client", *requirements_of("pyspark")}
    done = subprocess.run(
        [sys.executable, "-S", "-c", IMPORT_ALL, str(made), *packed, *given],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def requirements_of(distribution: str) -> set[str]:
    return {re.split(r"[^A-Za-z0-9._-]", text)[0] for text in metadata.requires(distribution) or ()}


def test_executors_are_asked_for_every_packed_library() -> None:
    imported = {name: owners for name, owners in metadata.packages_distributions().items() if name in executors.NEEDS}
    asked = {owner for owners in imported.values() for owner in owners}
    apart = {"kafka-python", "confluent-kafka"}
    assert set(shipping.LIBRARIES) - asked == apart, "which only the driver imports, and only the sink"


def test_the_same_sources_make_the_same_bytes(tmp_path: Path) -> None:
    shipping.write_zip(tmp_path / "a.zip")
    shipping.write_zip(tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all("==" in line for line in shipping.requirements())
    monkeypatch.setattr(shipping, "LIBRARIES", ("numpy", "no-such-library"))
    with pytest.raises(shipping.CannotPackage, match="no-such-library is not installed"):
        shipping.requirements()


@pytest.mark.parametrize(
    ("name", "is_packed"),
    [
        ("bin/python", True),
        ("lib/python3.11/site-packages/numpy/testing/__init__.py", True),
        ("lib/python3.11/site-packages/numpy/tests/test_all.py", False),
        ("lib/python3.11/site-packages/pyarrow/include/arrow/api.h", False),
        ("lib/python3.11/site-packages/pip", False),
        ("lib/python3.11/site-packages/distutils-precedence.pth", False),
    ],
)
def test_what_executors_never_import_is_left_out(name: str, is_packed: bool) -> None:
    assert (shipping.needed(tarfile.TarInfo(name)) is not None) is is_packed


def test_the_line_to_copy() -> None:
    words = shipping.submit_words(Path("b/logyard-spark.zip"), Path("b/compact.py"), Path("b/env.tar.gz"))
    assert "--py-files b/logyard-spark.zip --archives b/env.tar.gz#env" in words
    assert "spark.pyspark.python=./env/bin/python" in words
    assert "archives" not in shipping.submit_words(Path("z"), Path("j"), None)


def test_the_command(tmp_path: Path, capsys: Any) -> None:
    from logyard.cli import main as entry

    assert entry.main(["spark", "package", "--output", str(tmp_path / "made")]) == 0
    said = capsys.readouterr().out
    assert "logyard-spark.zip: " in said
    assert said.splitlines()[-1].startswith("spark-submit --master spark://")
    assert sorted(p.name for p in (tmp_path / "made").iterdir()) == [
        "audit.py",
        "compact.py",
        "export.py",
        "logyard-spark.zip",
        "maintenance.py",
    ]
