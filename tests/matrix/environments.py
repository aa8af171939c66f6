"""Environments of other versions than the lock's: an interpreter, packages as of a date, then the wheel.

They are kept in `.logyard/matrix` and made again when what they are made from changes. They are made by uv from the
package index alone: as it was two weeks after an Airflow's release, or with Airflow's own constraints, if
AIRFLOW_CONSTRAINTS names a folder with their files (constraints-VERSION/constraints-PYTHON.txt).
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".logyard" / "matrix"
SETTLED = timedelta(days=14)


@dataclass(frozen=True, slots=True)
class Environment:
    """One that is made. `before`: what was installed when the wheel came, as `name==version`."""

    directory: Path
    before: frozenset[str]

    @property
    def python(self) -> Path:
        return self.directory / "bin" / "python"

    def packages(self) -> frozenset[str]:
        return _frozen(self.directory)

    def install(self, *packages: str) -> None:
        """Add what tests need; no version that is installed changes."""
        limits = self.directory / "limits"
        limits.write_text("\n".join(sorted(self.packages())) + "\n")
        _uv("pip", "install", "--python", self.python, "--constraint", limits, *packages)

    def run(self, *arguments: str | Path, home: Path, folder: Path | None = None, timeout_s: float = 300) -> str:
        """What the environment's Python prints, run in `folder` (`home`, which is outside of the checkout); fails the
        test with the end of what it said."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PY", "VIRTUAL"))}
        kept |= {"AIRFLOW_HOME": str(home), "AIRFLOW__CORE__LOAD_EXAMPLES": "False", "HOME": str(home)}
        kept |= {"AIRFLOW__CORE__UNIT_TEST_MODE": "False", "PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}"}
        done = subprocess.run(
            [str(self.python), *map(str, arguments)],
            cwd=folder or home,
            env=kept,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
        return done.stdout


@cache
def wheel() -> Path:
    """The wheel of this checkout. Two workers that make it at once put the same bytes in one place."""
    kept = KEPT / "dist"
    kept.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEPT) as out:
        subprocess.run([ROOT / "scripts" / "dist", out], check=True, capture_output=True, timeout=300)
        (made,) = Path(out).glob("logyard-*.whl")
        return made.replace(kept / made.name)


def airflow(version: str, released: str, python: str, extras: str, neighbours: Sequence[str]) -> Environment:
    """Airflow with `neighbours` as its users have it, then the wheel with `extras`, by pip's own rules."""
    wanted = [f"apache-airflow=={version}", *neighbours]
    limits = ["--exclude-newer", str(date.fromisoformat(released) + SETTLED)]
    published = _published(version, python)
    if published is not None:
        limits = ["--constraint", str(published)]
    return made(f"airflow-{version}-py{python}", python, wanted, limits, f"{wheel()}[{extras}]")


def made(name: str, python: str, wanted: Sequence[str], limits: Sequence[str], ours: str) -> Environment:
    """The environment of that name; skips the test where there is no such interpreter."""
    directory = KEPT / name
    stamp = directory / "stamp"
    text = "\n".join([interpreter(python), *wanted, *limits, ours])
    mark = hashlib.sha256(text.encode() + wheel().read_bytes()).hexdigest()
    before = directory / "before"
    if not stamp.exists() or stamp.read_text() != mark:
        shutil.rmtree(directory, ignore_errors=True)
        _uv("venv", "--python", interpreter(python), directory)
        names, exact = directory / "wanted.in", directory / "wanted.txt"
        names.write_text("\n".join(wanted) + "\n")
        _uv("pip", "compile", "--python", directory / "bin/python", *limits, names, "-o", exact)
        _uv("pip", "sync", "--python", directory / "bin/python", exact)
        before.write_text("\n".join(sorted(_frozen(directory))))
        _uv("pip", "install", "--python", directory / "bin/python", ours)
        stamp.write_text(mark)
    return Environment(directory, frozenset(before.read_text().splitlines()))


def interpreter(python: str) -> str:
    """The path of that Python: this one, one on PATH or of pyenv, or one that uv has or gets; else skips the test."""
    if python == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    beside = sorted((Path.home() / ".pyenv" / "versions").glob(f"{python}.*/bin/python"))
    for candidate in (shutil.which(f"python{python}"), *map(str, beside)):
        if candidate is not None and _is(candidate, python):
            return candidate
    found = subprocess.run([uv(), "python", "find", python], capture_output=True, text=True, check=False)
    if found.returncode == 0 and _is(found.stdout.strip(), python):
        return found.stdout.strip()
    pytest.skip(f"there is no Python {python} on this machine: install it, or run `uv python install {python}`")


def uv() -> str:
    own = ROOT / ".logyard" / "uv" / "bin" / "uv"
    found = shutil.which("uv") or (str(own) if own.exists() else None)
    if found is None:
        pytest.skip("uv is missing: `make setup` brings it")
    return found


def _is(candidate: str, python: str) -> bool:
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    said = subprocess.run([candidate, "-c", code], capture_output=True, text=True, check=False)
    return said.stdout.strip() == python


def _published(version: str, python: str) -> Path | None:
    """Airflow's own constraints, from a checkout of them that the user names; None without one."""
    if not (folder := os.environ.get("AIRFLOW_CONSTRAINTS")):
        return None
    path = Path(folder) / f"constraints-{version}" / f"constraints-{python}.txt"
    return path if path.exists() else None


def _uv(*arguments: str | Path) -> str:
    settings = dict(os.environ)
    if mirror := os.environ.get("PIP_INDEX_URL"):
        settings.setdefault("UV_DEFAULT_INDEX", mirror)
    done = subprocess.run(
        [uv(), *map(str, arguments)], env=settings, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, f"uv {arguments}\n{done.stderr[-4000:]}"
    return done.stdout


def _frozen(directory: Path) -> frozenset[str]:
    listed = _uv("pip", "freeze", "--python", directory / "bin" / "python")
    return frozenset(line for line in listed.splitlines() if line and not line.startswith("logyard"))
