"""What executors without Logyard need: its modules as one zip (`--py-files`), and a packed environment with the
libraries (`--archives`). Executors import from a zip in `--py-files`, but not from a wheel (tried with Spark 4.2).

The module is not called `packaging`, because spark-submit puts this folder first on the path, where it would hide the
library of that name.
"""

import io
import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from logyard.broker.errors import LogyardError
from logyard.spark_jobs.atomic_file import draft_of, write_atomically

ROOT = Path(__file__).parents[1]
FOLDERS = ("broker", "login", "spark_jobs")
LIBRARIES = (
    "numpy",
    "pyarrow",
    "numba",
    "crc32c",
    "cramjam",
    "zstandard",
    "aiokafka",
    "confluent-kafka",
    "kafka-python",
)
# Packed if it is here: only exports to object stores need it.
OPTIONAL = ("obstore",)
JOBS = ("compact", "audit", "export", "maintenance")
INSIDE = "env"
# What executors never import: a fifth of the installed files.
LEFT_OUT = frozenset(
    {
        "__pycache__",
        "include",
        "tests",
        "pip",
        "setuptools",
        "pkg_resources",
        "_distutils_hack",
        "distutils-precedence.pth",
    }
)
# A fixed time, so that the same sources make the same zip.
_DATE = (1980, 1, 1, 0, 0, 0)


class CannotPackage(LogyardError):
    """An archive cannot be made; the text says why."""


def write_zip(path: Path) -> int:
    """Write the zip under a temporary name, then rename it; returns how many modules it holds. Raises OSError."""
    home = ROOT if (ROOT / "__init__.py").exists() else ROOT / "logyard"
    sources = [home / "__init__.py"]
    for folder in FOLDERS:
        sources += sorted((home / folder).resolve().rglob("*.py"))
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in sources:
            archive.writestr(zipfile.ZipInfo(_name_of(source, home), _DATE), source.read_bytes())
    write_atomically(str(path), data.getvalue())
    return len(sources)


def _name_of(source: Path, home: Path) -> str:
    """Return the name in the zip, `logyard/…` (in the repository the packages are links to top-level folders)."""
    for folder in FOLDERS:
        real = (home / folder).resolve()
        if source.is_relative_to(real):
            return str(Path("logyard", folder, source.relative_to(real)))
    return "logyard/__init__.py"


def write_job(directory: Path, job: str) -> Path:
    """Write the script that spark-submit runs for a job of the zip; returns its path."""
    path = directory / f"{job}.py"
    write_atomically(str(path), f"import sys\nfrom logyard.spark_jobs.{job}.job import main\nsys.exit(main())\n")
    return path


def requirements() -> list[str]:
    """The libraries at the versions installed here; raises CannotPackage naming one that is not."""
    found = []
    for name in LIBRARIES:
        try:
            found.append(f"{name}=={metadata.version(name)}")
        except metadata.PackageNotFoundError:
            raise CannotPackage(f"{name} is not installed here: pip install logyard[spark]") from None
    for name in OPTIONAL:
        with suppress(metadata.PackageNotFoundError):
            found.append(f"{name}=={metadata.version(name)}")
    return found


def write_environment(path: Path) -> list[str]:
    """Build an environment with the libraries and pack it as .tar.gz; returns what is in it. Takes minutes.

    Only libraries are packed: executors need the same Python version at the same path as here.
    Raises CannotPackage with pip's last line.
    """
    wanted = requirements()
    with tempfile.TemporaryDirectory(prefix="logyard-env-") as scratch:
        venv.create(scratch, with_pip=True)
        python = os.path.join(scratch, "bin", "python")
        command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise CannotPackage(f"pip: {(done.stderr.strip().splitlines() or ['failed without a word'])[-1]}")
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft_of(str(path)) as draft, tarfile.open(draft, "w:gz", compresslevel=3) as archive:
            for name in sorted(os.listdir(scratch)):
                archive.add(os.path.join(scratch, name), name, filter=needed)
    return wanted


def needed(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Return the member if it goes into the archive, else None."""
    return None if LEFT_OUT.intersection(member.name.split("/")) else member


def submit_words(zip_path: Path, job_path: Path, environment: Path | None) -> str:
    """Return the command line that uses the zip, a job's script and the environment."""
    words = ["spark-submit", "--master", "spark://HOST:7077", "--py-files", str(zip_path)]
    if environment is not None:
        words += ["--archives", f"{environment}#{INSIDE}", "--conf", f"spark.pyspark.python=./{INSIDE}/bin/python"]
        words += ["--conf", f"spark.pyspark.driver.python={sys.executable}"]
    return " ".join([*words, str(job_path), "--bootstrap-server", "HOST:9092", "--tokens", "tokens.json"])
