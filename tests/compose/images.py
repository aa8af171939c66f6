"""The images of docker-compose.yaml, made on this machine without a registry, in a store of the tests' own.

Base images are stand-ins under the official names (`standins/`): Debian's packages with the same variables, ports,
users and data directories. Ours is built from the Dockerfile as it is. What is there already is kept; ours is always
built, and podman's cache says what has changed.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from logyard.local.errors import LocalError

ROOT = Path(__file__).resolve().parents[2]
STORE = ROOT / ".logyard" / "containers"
NEEDED = ("podman", "runc", "netavark", "aardvark-dns", "debootstrap", "iptables")
# podman's own programs are not on PATH.
PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/lib/podman", "/usr/libexec/podman"))
PYTHON, OURS = "python:3.11-slim-bookworm", "logyard:local"
CLOCK = "logyard:clock"  # ours, under a clock that a test sets
STANDINS = {"zookeeper:3.9.3": "zookeeper", "postgres:17": "postgres"}
# The machine's limits may be lower than what podman asks for by itself.
ENGINE = """[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[containers]
default_ulimits = ["nofile=4096:8192", "nproc=4096:8192"]
log_driver = "k8s-file"
"""


@dataclass(frozen=True, slots=True)
class Podman:
    """podman with the tests' own store, so that no image of the user's is touched."""

    environment: dict[str, str]

    @classmethod
    def of_tests(cls) -> "Podman":
        """Raises LocalError where a tool is missing."""
        missing = [tool for tool in NEEDED if shutil.which(tool, path=PATH) is None]
        if missing or os.geteuid() != 0:
            raise LocalError(f"containers need root and Debian's packages {', '.join(missing) or 'podman …'}")
        STORE.mkdir(parents=True, exist_ok=True)
        engine, storage = STORE / "containers.conf", STORE / "storage.conf"
        engine.write_text(ENGINE)
        places = f'graphroot = "{STORE / "store"}"\nrunroot = "{STORE / "run"}"\n'
        storage.write_text(f'[storage]\ndriver = "overlay"\n{places}')
        where = {"CONTAINERS_CONF": str(engine), "CONTAINERS_STORAGE_CONF": str(storage)}
        # Health checks are run by the tests: podman's timers need systemd.
        return cls({**os.environ, **where, "DISABLE_HC_SYSTEMD": "true"})

    def run(self, *words: str, timeout_s: float = 600.0, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run podman. Raises LocalError with what it said."""
        done = subprocess.run(
            ("podman", *words), env=self.environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        if check and done.returncode:
            raise LocalError(f"podman {' '.join(words[:3])}: {(done.stderr or done.stdout)[-2000:]}")
        return done

    def has(self, image: str) -> bool:
        return self.run("image", "exists", f"localhost/{image}", check=False).returncode == 0

    def build(self, image: str, folder: Path) -> None:
        """Build an image on the machine's own network, with its settings for pip."""
        words = ["build", "--network", "host", "--tag", image]
        settings = Path("/etc/pip.conf")
        if settings.exists():
            words += ["--volume", f"{settings}:{settings}:ro"]
        self.run(*words, str(folder), timeout_s=1800.0)


def make_all(podman: Podman) -> None:
    """Make every image of docker-compose.yaml. Raises LocalError."""
    if not podman.has(PYTHON):
        _make_base(podman)
    for image, folder in STANDINS.items():
        if not podman.has(image):
            podman.build(image, Path(__file__).parent / "standins" / folder)
    podman.build(OURS, ROOT)


def make_clock(podman: Podman) -> None:
    """Make the image with a clock of its own, once the others are there. Raises LocalError."""
    podman.build(CLOCK, Path(__file__).parent / "standins" / "clock")


def _make_base(podman: Podman) -> None:
    """Make Debian with Python, from the mirror and with the certificates of this machine."""
    tree = STORE / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    packages = "python3,python3-venv,python3-pip,ca-certificates,procps,tini"
    command = ["debootstrap", "--variant=minbase", f"--include={packages}", "bookworm", str(tree), *_mirror()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise LocalError(f"debootstrap: {done.stdout[-1000:]}")
    for name in ("python", "python3"):  # the official image has them there
        (tree / "usr/local/bin" / name).symlink_to("/usr/bin/python3.11")
    for place in ("etc/ssl/certs/ca-certificates.crt", "usr/local/share/ca-certificates"):
        source = Path("/") / place
        if source.is_dir():
            shutil.copytree(source, tree / place, dirs_exist_ok=True)
        elif source.exists():
            shutil.copy(source, tree / place)
    pack = subprocess.Popen(
        ["tar", "-C", str(tree), "--one-file-system", "--exclude=./proc/*", "--exclude=./sys/*", "-c", "."],
        stdout=subprocess.PIPE,
    )
    path = "ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    subprocess.run(
        ["podman", "import", "--change", path, "--change", 'CMD ["python3"]', "-", PYTHON],
        stdin=pack.stdout, env=podman.environment, check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    if pack.wait():
        raise LocalError("tar could not pack the base image")
    shutil.rmtree(tree, ignore_errors=True)


def _mirror() -> list[str]:
    """Return the mirror of this machine's own sources, if it is told in one of the two usual ways."""
    for path in (Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("debian*"))):
        for line in path.read_text().splitlines() if path.exists() else ():
            words = line.split()
            if words[:1] == ["URIs:"]:
                return words[1:2]
            if words[:1] == ["deb"] and "bookworm" in words:
                return [next(word for word in words if "://" in word)]
    return []
