"""The jars of Delta Lake and Iceberg out of Maven Central, and PyIceberg, fetched once into .logyard/tables."""

import shutil
import subprocess
import tempfile
import venv
from pathlib import Path

import pytest

CACHE = Path(__file__).resolve().parents[2] / ".logyard" / "tables"
FETCH_S = 300
_DELTA = "4.4.0"
# Delta's is built for the Spark that is pinned. Of Iceberg only the core is used, which any Spark's runtime brings:
# there is none for Spark 4.2 yet.
ARTIFACTS = {
    "delta": [
        f"io.delta:delta-spark_4.2_2.13:{_DELTA}",
        *(f"io.delta:delta-{n}:{_DELTA}" for n in ("storage", "kernel-api", "kernel-defaults", "kernel-unitycatalog")),
    ],
    "iceberg": ["org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"],
}
# A reader that nobody here wrote and that shares nothing with the jars. In a Python of its own: only tests want it.
PYICEBERG = "pyiceberg[pyarrow]==0.12.0"


def iceberg_python_or_skip() -> str:
    """A Python that has PyIceberg; skips the test, with the reason, where it cannot be had."""
    home = CACHE / "pyiceberg-0.12.0"
    if not home.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as aside:
            venv.create(aside, with_pip=True)
            command = [f"{aside}/bin/python", "-m", "pip", "install", "-q", PYICEBERG]
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, check=False)
            if done.returncode:
                pytest.skip(f"pip: {done.stderr.strip()[-300:]}")
            shutil.copytree(aside, home, symlinks=True)
    return str(home / "bin" / "python")


def jars_or_skip(name: str) -> str:
    """The jars by commas, as Spark wants them; skips the test, with the reason, where they cannot be had."""
    paths = []
    for artifact in ARTIFACTS[name]:
        _, short, version = artifact.split(":")
        path = CACHE / f"{short}-{version}.jar"
        if not path.exists():
            _fetch(artifact, path)
        paths.append(str(path))
    return ",".join(paths)


def _fetch(artifact: str, path: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        pytest.skip("mvn is missing: Maven fetches the jars of the tables")
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as aside:
        command = [maven, "-q", "-B", "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"]
        command += [f"-Dartifact={artifact}", f"-DoutputDirectory={aside}"]
        try:
            subprocess.run(command, capture_output=True, timeout=FETCH_S, check=True, cwd=aside)
        except (subprocess.SubprocessError, OSError) as error:
            pytest.skip(f"Maven has no {artifact}: {error}")
        shutil.move(Path(aside) / path.name, path)
