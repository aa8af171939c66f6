"""Which Python `scripts/setup` takes: the one named, then the one that .venv has, then the first on PATH."""

import os
import re
import subprocess
import venv
from pathlib import Path

SCRIPT = Path(__file__).parents[3] / "scripts" / "setup"


def taken(directory: Path, **environment: str) -> Path:
    """Ask the script's own lines; `python3` on PATH is a program that only says it fits."""
    text = SCRIPT.read_text()
    lines = [re.search(rf"^{name}=.*$", text, re.MULTILINE) for name in ("venv", "fits")]
    function = re.search(r"^find_python\(\) \{.*?^\}$", text, re.MULTILINE | re.DOTALL)
    assert all(lines), "the script names its venv and what fits"
    assert function, "the script looks for a Python"
    other = directory / "bin" / "python3"
    other.parent.mkdir(exist_ok=True)
    other.write_text("#!/bin/sh\nexit 0\n")
    other.chmod(0o755)
    settings = {**os.environ, "PATH": f"{other.parent}:{os.environ['PATH']}", **environment}
    if "PYTHON" not in environment:
        settings.pop("PYTHON", None)
    words = "\n".join([*(line.group() for line in lines if line), function.group(), "find_python"])
    said = subprocess.run(["sh", "-eu", "-c", words], cwd=directory, env=settings, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    return Path(said.stdout.strip())


def test_the_first_on_path_where_there_is_no_venv(tmp_path: Path) -> None:
    assert taken(tmp_path) == Path("python3")


def test_a_venv_keeps_its_python_whatever_is_first_on_path(tmp_path: Path) -> None:
    # `PYTHON=/usr/bin/python3.11 make setup` was undone by the next `make test`, which measured another interpreter.
    venv.create(tmp_path / ".venv", with_pip=False, symlinks=True)
    assert taken(tmp_path).resolve() == (tmp_path / ".venv" / "bin" / "python").resolve()


def test_who_names_another_gets_it(tmp_path: Path) -> None:
    venv.create(tmp_path / ".venv", with_pip=False, symlinks=True)
    assert taken(tmp_path, PYTHON="/bin/true") == Path("/bin/true")


def test_a_venv_whose_python_is_gone_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(tmp_path / "gone")
    assert taken(tmp_path) == Path("python3")
