"""Iceberg's own REST catalog, a Hive metastore and moto's Glue as processes, fetched once into .logyard/tables. They
listen on loopback alone.

with running_rest(tmp_path) as uri:
    settings = {"type": "rest", "uri": uri, "credential": CREDENTIAL}

Their metadata are files below the directory; their lists of tables are SQLite, Derby, or memory.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from logyard.local.ports import free_port
from tests.support.needed import fetched, lacks, python_with, run
from tests.support.table_jars import CACHE
from tests.support.zookeeper import QUICK_JAVA, java, pyspark_jars

HERE = Path(__file__).parent
REST, HIVE = "rest-1.11.0", "hive-4.0.0"
MOTO = "moto[server]==5.2.5"
# What PyIceberg's extras `hive` and `glue` bring.
CLIENTS = ("thrift==0.25.0", "boto3==1.44.8")
CREDENTIAL = "exporter:the-catalogs-own-secret"
START_S = 60
# The metastore's libraries look into these.
OPENED = ("lang", "net", "util", "util.concurrent")


@contextmanager
def running_rest(directory: Path) -> Iterator[str]:
    """Run the catalog; gives its address. The test lacks it where it cannot be had."""
    port = free_port()
    wanted = ("hadoop-client-*", "slf4j-api*", "log4j-*")
    jars = [f"{_jars_or_skip(REST, 'iceberg_rest', 'REST catalog')}/*", *_hadoop(wanted)]
    source = str(HERE / "iceberg_rest" / "IcebergRest.java")
    command = [java(), "-Xmx256m", QUICK_JAVA, "-cp", os.pathsep.join(jars), source, str(port), str(directory)]
    with _running(command, directory, lambda: _answers(f"http://127.0.0.1:{port}/v1/config")):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def running_hive(directory: Path) -> Iterator[str]:
    """Run a Hive metastore; gives its address. The test lacks it where it cannot be had."""
    port = free_port()
    jars = [f"{_jars_or_skip(HIVE, 'hive_metastore', 'the Hive metastore')}/*", *_hadoop(("hadoop-client-*",))]
    opened = [word for name in OPENED for word in ("--add-opens", f"java.base/java.{name}=ALL-UNNAMED")]
    command = [java(), "-Xmx384m", QUICK_JAVA, f"-Dderby.stream.error.file={directory}/derby.log", *opened]
    command += ["-cp", os.pathsep.join(jars), str(HERE / "hive_metastore" / "HiveMetastore.java")]
    with _running([*command, str(port), str(directory)], directory, lambda: _listens(port)):
        yield f"thrift://127.0.0.1:{port}"


@contextmanager
def running_glue(directory: Path) -> Iterator[str]:
    """Run moto's server; gives its address. The test lacks it where it cannot be had."""
    port = free_port()
    # Scripts of an environment name its path, so nothing of it is used but Python, from wherever it is moved to.
    home = fetched(CACHE / "moto-5.2.5", lambda aside: python_with(aside, [MOTO], "site"))
    starts = (
        "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); runpy.run_module('moto.server', run_name='__main__')"
    )
    command = [f"{home}/bin/python", "-c", starts, f"{home}/site", "-H", "127.0.0.1", "-p", str(port)]
    with _running(command, directory, lambda: _listens(port)):
        yield f"http://127.0.0.1:{port}"


def clients_or_skip() -> str:
    """The folder of the libraries with which PyIceberg asks Hive and Glue, for sys.path."""
    return str(fetched(CACHE / "catalog-clients-1", lambda aside: python_with(aside, CLIENTS, "site")) / "site")


@contextmanager
def _running(command: Sequence[str], directory: Path, is_up: Callable[[], bool]) -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True, cwd=directory)
    try:
        deadline = time.monotonic() + START_S
        while not is_up():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, f"the catalog does not answer after {START_S} s: {log.read_text()}"
            time.sleep(0.1)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def _hadoop(patterns: Sequence[str]) -> Iterator[str]:
    return (str(jar) for pattern in patterns for jar in pyspark_jars().glob(pattern))


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def _jars_or_skip(name: str, folder: str, what: str) -> Path:
    maven = shutil.which("mvn")
    if maven is None:
        lacks(f"mvn is missing: Maven fetches {what}")
    command = [maven, "-q", "-B", "-f", str(HERE / folder / "pom.xml"), "dependency:copy-dependencies"]
    words = ["-DincludeScope=runtime"]
    return fetched(CACHE / name, lambda aside: run([*command, *words, f"-DoutputDirectory={aside}"], what))
