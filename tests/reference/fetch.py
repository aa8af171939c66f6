"""`make reference`: Apache Kafka's own jars, and Spark's Kafka source, out of Maven Central into .logyard/reference.

Fetched once; at once when pom.xml has not changed. What is fetched is a folder of jars per profile of pom.xml. Kafka's
later clients, `java4`, have a pom of their own: a dependency has one version in each.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from logyard.local import files
from logyard.local.errors import LocalError

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".logyard" / "reference"
PROFILES = ("kafka", "spark", "java4")
OWN_POMS = {"java4": HERE / "java4.pom.xml"}
FETCH_S = 600
# A schema registry that speaks Confluent's interface, as Apicurio publishes it to run.
REGISTRY = "io.apicurio:apicurio-registry-app:3.3.3:tar.gz:all"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"


def jars(profile: str) -> Path:
    """The folder of that profile's jars, fetched if need be. Raises LocalError that says what is missing."""
    if profile not in PROFILES:
        raise LocalError(f"no profile {profile} in pom.xml: {', '.join(PROFILES)} are known")
    digest = hashlib.sha256((HERE / "pom.xml").read_bytes()).hexdigest()[:12]
    pom = OWN_POMS.get(profile, HERE / "pom.xml")
    folder = CACHE / digest / profile
    if profile in OWN_POMS:
        folder = CACHE / digest / f"{profile}-{hashlib.sha256(pom.read_bytes()).hexdigest()[:8]}"
    with files.locked(CACHE / "lock"):
        if not folder.is_dir():
            _fetch(profile, pom, folder)
            _forget_older(digest)
    return folder


def schema_registry() -> Path:
    """The folder with the schema registry's quarkus-run.jar, fetched if need be. Raises LocalError."""
    version = REGISTRY.split(":")[2]
    folder = CACHE / hashlib.sha256((HERE / "pom.xml").read_bytes()).hexdigest()[:12] / f"registry-{version}"
    with files.locked(CACHE / "lock"):
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            aside = Path(tempfile.mkdtemp(prefix=".registry-", dir=folder.parent))
            try:
                _maven("the schema registry", [_COPY, f"-Dartifact={REGISTRY}", f"-DoutputDirectory={aside}"])
                archive = next(aside.glob("*.tar.gz"))
                shutil.unpack_archive(archive, aside, filter="data")
                archive.unlink()
                aside.rename(folder)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    return folder


def _fetch(profile: str, pom: Path, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{profile}-", dir=folder.parent))
    command = ["-f", str(pom), "-P", profile, "dependency:copy-dependencies"]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={aside}"]
    try:
        _maven(f"the jars of {profile}", command)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _maven(what: str, arguments: list[str]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise LocalError("mvn is missing: install Maven (Debian: apt install maven) to run beside Apache Kafka")
    command = [maven, "-q", "-B", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise LocalError(f"Maven has not fetched {what} after {FETCH_S} s") from error
    if done.returncode != 0:
        said = [line for line in (done.stdout + done.stderr).splitlines() if "[ERROR]" in line]
        raise LocalError(f"Maven cannot fetch {what}: {said[0] if said else 'it said nothing'}")


def _forget_older(digest: str) -> None:
    for other in CACHE.iterdir():
        if other.is_dir() and other.name != digest:
            shutil.rmtree(other, ignore_errors=True)


def main() -> int:
    try:
        counts = [f"{profile} {sum(1 for _ in jars(profile).glob('*.jar'))} jars" for profile in PROFILES]
    except LocalError as error:
        print(f"reference: {error}", file=sys.stderr)
        return 1
    print(f"reference: {', '.join(counts)} in {os.path.relpath(CACHE)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
