"""Compiled code that is kept between processes, on disks that fill up and lose what was not synced."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

RUN = """
import numpy as np
from logyard.broker.compiled.kernels import count_batches
assert count_batches(np.zeros(100, np.uint8), 10) == (0, 0, 0)
print(sum(count_batches.made.stats.cache_hits.values()))
"""


def hits(cache: Path) -> int:
    """Run a kernel in a process of its own; returns how often its code was found in the cache."""
    return _hits({"NUMBA_CACHE_DIR": str(cache)})


def hits_below(place: Path, **variables: str) -> int:
    """The same where kernels are to be this user's own, in a directory that anybody may write."""
    return _hits({"TMPDIR": str(place), **(variables or {"LOGYARD_PRIVATE_KERNELS": "1"})})


def _hits(variables: dict[str, str]) -> int:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"} | variables
    done = subprocess.run([sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return int(done.stdout)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a process has compiled: once, as that takes seconds."""
    made = tmp_path_factory.mktemp("compiled")
    assert hits(made) == 0
    return made


@pytest.fixture
def cache(compiled: Path, tmp_path: Path) -> Path:
    """The test's own copy of it."""
    return Path(shutil.copytree(compiled, tmp_path / "cache"))


def empty(data: bytes) -> bytes:
    return b""


def zeros(data: bytes) -> bytes:
    return bytes(len(data))


@pytest.mark.parametrize(
    ("kind", "lose"),
    [
        ("nbi", empty),
        ("nbc", zeros),
        pytest.param("nbi", zeros, marks=[pytest.mark.long, pytest.mark.slow]),
        pytest.param("nbc", empty, marks=[pytest.mark.long, pytest.mark.slow]),
    ],
)
def test_what_a_power_cut_left_is_compiled_again(kind: str, lose: Callable[[bytes], bytes], cache: Path) -> None:
    files = sorted(cache.rglob(f"*.{kind}"))
    assert files
    for file in files:
        file.write_bytes(lose(file.read_bytes()))
    assert [hits(cache), hits(cache)] == [0, 1]


def test_a_place_that_takes_no_file_is_done_without(cache: Path) -> None:
    files = list(cache.rglob("*.nb?"))
    assert files
    for file in files:
        file.unlink()
        file.mkdir()  # nothing can be put in its place
    assert [hits(cache), hits(cache)] == [0, 0]


def test_kernels_in_a_directory_for_everybody_are_the_users_own(tmp_path: Path) -> None:
    """numba unpickles what it finds, which would run what somebody else has put there."""
    assert [hits_below(tmp_path), hits_below(tmp_path)] == [0, 1]
    (own,) = tmp_path.iterdir()
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    own.chmod(0o777)
    assert hits_below(tmp_path) == 0
    moved = own.rename(tmp_path / "moved")
    moved.chmod(0o700)
    own.symlink_to(moved)
    assert hits_below(tmp_path) == 0


def test_where_numba_may_write_nowhere_kernels_are_kept_there_too(tmp_path: Path) -> None:
    """A system user without a home, in an installation of root's: numba refuses to compile anything."""
    nowhere = {"NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
    assert [hits_below(tmp_path, **nowhere), hits_below(tmp_path, **nowhere)] == [0, 1]
    (own,) = tmp_path.iterdir()
    own.chmod(0o777)
    assert hits_below(tmp_path, **nowhere) == 0


WITHOUT = """
import sys
from logyard.spark_jobs.audit import job as audit
from logyard.spark_jobs.compact import job as compact
from logyard.spark_jobs.export import job as export
print("numba" in sys.modules, "llvmlite" in sys.modules)
"""


def test_the_driver_of_a_job_imports_the_loops_without_numba() -> None:
    """Half a second of its start, while its workers' daemon does the same."""
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def test_a_kernel_calls_kernels_and_what_emits_instructions(tmp_path: Path) -> None:
    run = """
import numpy as np
from logyard.broker.compiled.jit import kernel, load_word
@kernel
def word(buffer, at):
    "One word."
    return load_word(buffer, at) & 0xFF
@kernel
def both(buffer):
    return word(buffer, 0) + word(buffer, 8)
assert both.__name__ == "both" and word.__doc__ == "One word."
data = np.zeros(16, np.uint8)
data[:] = 3
print(int(both(data)))
"""
    file = tmp_path / "run.py"
    file.write_text(run)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "kept")}
    for _ in range(2):
        done = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, check=False)
        assert done.stdout == "6\n", done.stderr
