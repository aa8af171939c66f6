"""Stock clients of other languages: kafkajs (npm), kafka-go and sarama (Go), fetched at pinned versions and run.

Each is a program in tests/clients that does one verb and ends: `produce` `count` messages PREFIX-0… in batches of
`batch`, `consume` them in a group of `members` and commit, `administer` a topic from its creation to its deletion,
`committed` offsets of a group (which it deletes), offsets `first_since` a time, `transact` once. What is built lies in
.logyard/clients, by the digest of what it is made from; Go's modules are where Go keeps them, for every checkout.
"""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from logyard.local import files
from logyard.local.errors import LocalError
from tests.support.needed import lacks

PROGRAMS = Path(__file__).resolve().parents[1] / "clients"
CACHE = PROGRAMS.parents[1] / ".logyard" / "clients"
MADE_S = 900
VERB_S = 120.0
NAMES = ("kafkajs", "kafka-go", "sarama")


class Client:
    """One client, ready to run."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        self.name = name
        self.command = command
        self._environment = {**os.environ, **environment}

    def start(self, verb: str, **wanted: Any) -> subprocess.Popen[str]:
        """Run the verb in the background; `answer_of` reads what comes of it."""
        wanted = {"batch": 100, **wanted}
        command = [*self.command, verb, json.dumps(wanted)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=self._environment, stdout=pipe, stderr=pipe, text=True)

    def ask(self, verb: str, timeout_s: float = VERB_S, **wanted: Any) -> dict[str, Any]:
        """Run the verb to its end: its answer, with `error` in it where it failed, and `ms`, how long it took."""
        return answer_of(self.start(verb, **wanted), timeout_s)

    def do(self, verb: str, timeout_s: float = VERB_S, **wanted: Any) -> dict[str, Any]:
        """The same for what has to succeed."""
        answer = self.ask(verb, timeout_s, **wanted)
        assert "error" not in answer, f"{self.name} {verb} {wanted}: {answer['error']}"
        return answer


def answer_of(running: subprocess.Popen[str], timeout_s: float = VERB_S) -> dict[str, Any]:
    """What a started verb says at its end; an assertion fails where it says nothing, or not in time."""
    try:
        said, complained = running.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        running.kill()
        said, complained = running.communicate()
        raise AssertionError(f"no end after {timeout_s} s: {running.args!r}\n{said}\n{complained}") from None
    lines = said.strip().splitlines()
    assert lines, f"{running.args!r} said nothing:\n{complained[-2000:]}"
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


def client_or_skip(name: str) -> Client:
    """That client; skips the test where it cannot be had, fails it under LOGYARD_REQUIRE."""
    try:
        return _kafkajs() if name == "kafkajs" else _in_go(name)
    except LocalError as error:
        lacks(str(error))


def franz_go_copier(bootstrap: str, source: str, target: str, batch: int) -> list[str]:
    """The command of a copier by franz-go's transactions; skips the test where it cannot be had."""
    try:
        wanted = {"bootstrap": bootstrap.split(",")[0], "source": source, "target": target, "batch": batch}
        return [*_in_go("franz-go").command, "copy", json.dumps(wanted)]
    except LocalError as error:
        lacks(str(error))


def _kafkajs() -> Client:
    node, npm = _tool("node", "nodejs"), _tool("npm", "npm")
    source = PROGRAMS / "kafkajs"

    def fetch(aside: Path) -> None:
        for file in ("package.json", "package-lock.json"):
            shutil.copy(source / file, aside)
        _run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], aside, {})

    home = _made("kafkajs", [source / "package.json", source / "package-lock.json"], fetch)
    return Client("kafkajs", [node, str(source / "main.js")], {"NODE_PATH": str(home / "node_modules")})


def _in_go(name: str) -> Client:
    go = _tool("go", "golang-go")
    source = PROGRAMS / name

    def build(aside: Path) -> None:
        environment = {
            "GOFLAGS": "-mod=readonly -modcacherw -buildvcs=false",
            "GOTOOLCHAIN": "local",
            "CGO_ENABLED": "0",
        }
        _run([go, "build", "-o", str(aside / name), "."], source, environment)

    home = _made(name, [source / "go.mod", source / "go.sum", source / "main.go"], build)
    return Client(name, [str(home / name)], {})


def _tool(name: str, package: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise LocalError(f"{name} is missing: install {package} (Debian's name) to test clients of other languages")
    return found


def _made(name: str, sources: list[Path], make: Callable[[Path], None]) -> Path:
    """The folder that `make` filled from these sources, once."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    home = CACHE / f"{name}-{digest}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with files.locked(CACHE / "lock"):
        if not home.is_dir():
            aside = CACHE / f".{name}"
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            make(aside)
            for older in CACHE.glob(f"{name}-*"):
                shutil.rmtree(older, ignore_errors=True)
            aside.rename(home)
    return home


def _run(command: list[str], directory: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=MADE_S,
        check=False,
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise LocalError(
            f"{' '.join(command[:2])} fails for {directory.name}: {said[-1] if said else 'it says nothing'}"
        )
