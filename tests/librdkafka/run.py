"""librdkafka's own test-suite, from Debian's source, against three of our brokers.

    python tests/librdkafka/run.py                    # everything in allowed.txt
    python tests/librdkafka/run.py 0011 0090          # only the tests whose names contain one of these
    python tests/librdkafka/run.py --source DIR 0011  # a source that is built already

The source is fetched with apt (by lists of our own made of the system's, which are not touched), built once under
build/librdkafka and kept. allowed.txt names the tests that must pass (and where not all of one can, those of its
subtests that must, each run by itself); left-out.txt names all others, each with its reason: a test that is in neither
is an error. What a test says is in build/librdkafka/output/NUMBER-SCENARIO.log.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

from logyard.local.cluster import LocalCluster
from logyard.local.layout import Settings

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "librdkafka"
APT = Path("/etc/apt")
TEST_TIMEOUT_S = 600
# 0018 runs out of its own time whenever the first of its members draws the larger id, whoever serves it: it reads all
# there is before the second has its partitions, and then waits for more.
PATIENCE = 2
# A test that leaves itself out (for want of a feature, say) is reported as passed, in no time.
DOES_NOTHING_S = 0.001
# What librdkafka's own runner sets up: every broker in a rack of its own, reads from followers, four partitions; and
# Kafka's own wait for more members, which tests that count rebalances rely on.
BROKERS = {
    "group.initial.rebalance.delay.ms": "3000",
    "num.partitions": "4",
    "default.replication.factor": "3",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "log.cleaner.backoff.ms": "500",
}
SCENARIOS = {"default": {"auto.create.topics.enable": "true"}, "noautocreate": {"auto.create.topics.enable": "false"}}
RACKED_BROKER = (sys.executable, "-P", str(HERE / "racked_broker.py"))


@dataclass(frozen=True, slots=True)
class Ended:
    """How one test ended."""

    name: str
    state: str
    seconds: float


def fetch(into: Path) -> Path:
    """Return the unpacked source of Debian's librdkafka, fetched where it is not there yet.

    Beside it go the headers of RapidJSON, without which the suite leaves out the tests that read statistics.
    """
    found = sorted(into.glob("librdkafka-*/"))
    if found:
        return found[0]
    for folder in ("lists/partial", "cache/archives/partial", "sources.d"):
        (into / folder).mkdir(parents=True, exist_ok=True)
    for listed in (APT / "sources.list", *sorted((APT / "sources.list.d").glob("*.[ls]*"))):
        if listed.suffix in (".list", ".sources") and listed.exists():
            (into / "sources.d" / listed.name).write_text(with_sources(listed.read_text()))
    options = [
        "Dir::Etc::sourcelist=/dev/null",
        f"Dir::Etc::sourceparts={into}/sources.d",
        f"Dir::State::lists={into}/lists",
        f"Dir::Cache={into}/cache",
        "Acquire::Languages=none",
    ]
    apt = ["apt-get", *(word for option in options for word in ("-o", option))]
    subprocess.run([*apt, "update"], cwd=into, check=True)
    subprocess.run([*apt, "download", "rapidjson-dev"], cwd=into, check=True)
    subprocess.run(["dpkg", "-x", next(into.glob("rapidjson-dev_*.deb")).name, "headers"], cwd=into, check=True)
    subprocess.run([*apt, "source", "librdkafka"], cwd=into, check=True)
    return next(iter(into.glob("librdkafka-*/")))


def with_sources(text: str) -> str:
    """The Debian archives of one of apt's lists (either form), asked for sources too; others are left out."""
    if "Types:" in text:
        stanzas = [stanza for stanza in re.split(r"\n\s*\n", text) if "debian" in stanza.lower()]
        return "\n\n".join(re.sub(r"(?m)^Types:.*$", "Types: deb deb-src", stanza) for stanza in stanzas) + "\n"
    lines = [line for line in text.splitlines() if line.startswith("deb ") and "debian" in line.lower()]
    return "".join(f"{line}\ndeb-src {line.removeprefix('deb ')}\n" for line in lines)


def build(source: Path) -> Path:
    """Return the folder of the built test-runner."""
    tests = source / "tests"
    if not (tests / "test-runner").exists():
        jobs = f"-j{os.cpu_count() or 1}"
        headers = source.parent / "headers" / "usr" / "include"
        for command in (
            ["./configure", f"--CXXFLAGS=-isystem {headers}"],
            ["make", jobs, "libs"],
            ["make", jobs, "-C", "tests", "test-runner"],
        ):
            with (source / "logyard-build.log").open("ab") as log:
                subprocess.run(command, cwd=source, check=True, stdout=log, stderr=log)
    return tests


def names_in(path: Path) -> dict[str, str]:
    """Read `name  reason` lines; a # begins a comment."""
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return {name: reason.strip() for name, _, reason in (line.partition(" ") for line in lines if line)}


def scenarios_of(tests: Path) -> dict[str, str]:
    """Every test in the source and the scenario it needs."""
    table = (tests / "test.c").read_text().partition("struct test tests[] = {")[2].partition("{NULL}};")[0]
    entries = re.findall(r"_TEST\((\w+),(.*?)(?=_TEST\(|\Z)", table, re.DOTALL)
    found = {name: re.search(r'\.scenario\s*=\s*"([^",]+)', rest) for name, rest in entries}
    return {name: scenario[1] if scenario else "default" for name, scenario in found.items()}


@dataclass(frozen=True, slots=True)
class Setup:
    """How the suite's clients log in: lines of its configuration, and variables that single tests read."""

    name: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def cluster(scenario: str) -> Iterator[str]:
    """Three brokers, each in a rack of its own; gives their addresses."""
    with TemporaryDirectory(prefix="librdkafka-") as directory:
        brokers = LocalCluster(Path(directory), broker_command=RACKED_BROKER)
        brokers.start(Settings(3, None, None, {**BROKERS, **SCENARIOS[scenario]}))
        try:
            yield str(brokers.layout.read_description()["bootstrap"])
        finally:
            brokers.stop()


def run(
    tests: Path,
    names: Sequence[str],
    part: str,
    scenario: str,
    bootstrap: str,
    output: Path,
    setup: Setup = Setup(),  # it has no state
) -> list[Ended]:
    """Run the tests of one number: librdkafka's runner chooses by number, not by name. `part` names one subtest."""
    number = names[0].partition("_")[0]
    label = f"{number}-{setup.name or scenario}"
    conf, report = output / f"{label}.conf", output / f"{label}.json"
    lines = {
        "bootstrap.servers": bootstrap,
        "broker.address.family": "v4",
        "test.timeout.multiplier": str(PATIENCE),
        **setup.options,
    }
    conf.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    report.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": f"{tests.parent}/src:{tests.parent}/src-cpp",
        "RDKAFKA_TEST_CONF": str(conf),
        "TEST_REPORT": str(report),
        "TESTS": number,
        "BROKERS": bootstrap,
        "KAFKA_PATH": str(_kafka_path(output)),
        **({"SUBTESTS": part} if part else {}),
        **setup.variables,
    }
    command = ["./test-runner", "-p1", "-L", "-V", "3.9.0.0", "-s", scenario]
    begun = time.monotonic()
    with (output / f"{label}.log").open("ab") as log:
        try:
            status = subprocess.run(
                command, cwd=tests, env=environment, stdout=log, stderr=log, timeout=TEST_TIMEOUT_S, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            status = None
    taken = round(time.monotonic() - begun, 1)
    if status is None:
        return [Ended(f"{name} {part}".strip(), "TIMEOUT", taken) for name in names]
    return [
        replace(ended, name=f"{ended.name} {part}".strip())
        for ended in (judged(report, n, status, taken) for n in names)
    ]


def _kafka_path(output: Path) -> Path:
    """A folder that stands for Kafka's: its kafka-topics.sh is kafka_topics.py, its jars are those of tests/reference.

    A test compiles and runs a producer of Java's with them, so that it needs a JDK.
    """
    sys.path.insert(0, str(HERE.parents[1]))
    from tests.reference import fetch as reference

    folder = output / "kafka"
    scripts = {
        "kafka-topics.sh": f'exec "{sys.executable}" -P "{HERE / "kafka_topics.py"}" "$@"',
        "kafka-acls.sh": 'exec java -Xmx128m -cp "$KAFKA_PATH/libs/*" kafka.admin.AclCommand "$@"',
        "kafka-run-class.sh": 'exec java -cp "$CLASSPATH:$KAFKA_PATH/libs/*" "$@"',
    }
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    for name, line in scripts.items():
        script = folder / "bin" / name
        script.write_text(f"#!/bin/sh\n{line}\n")
        script.chmod(0o755)
    (folder / "libs").unlink(missing_ok=True)
    (folder / "libs").symlink_to(reference.jars("kafka"))
    return folder


def judged(report: Path, name: str, status: int, taken: float) -> Ended:
    """What the runner's own report says; it writes none where it crashed."""
    try:
        found = json.loads(report.read_text())["tests"][name]
        state, seconds = str(found["state"]), float(found["duration"])
    except (OSError, ValueError, KeyError):
        return Ended(name, f"NO REPORT (exit {status})", taken)
    if state == "PASSED" and seconds < DOES_NOTHING_S:
        state = "DID NOTHING"
    return Ended(name, state, round(seconds, 1))


def chosen(wanted: Sequence[str], allowed: Iterable[str], known: Iterable[str]) -> list[str]:
    """The allowed tests; or those of all that are named in full, and the allowed ones whose names contain a word."""
    allowed = list(allowed)
    if not wanted:
        return allowed
    return [name for name in known if name in wanted or (name in allowed and any(word in name for word in wanted))]


def unlisted(allowed: Iterable[str], left_out: dict[str, str], known: Iterable[str]) -> list[str]:
    """What is wrong with the two lists, one line each."""
    allowed, known = set(allowed), set(known)
    wrong = [f"{name}: neither in allowed.txt nor in left-out.txt" for name in known - allowed - left_out.keys()]
    wrong += [f"{name}: in both lists" for name in allowed & left_out.keys()]
    wrong += [f"{name}: the suite has no such test" for name in (allowed | left_out.keys()) - known]
    wrong += [f"{name}: left out without a reason" for name, reason in left_out.items() if not reason]
    return sorted(wrong)


def of_scenario(
    scenario: str, names: Sequence[str], allowed: Mapping[str, str], tests: Path, bootstrap: str, output: Path
) -> Iterator[Ended]:
    """Run the tests of one scenario, those of one number together, and each of a test's parts on its own."""
    for number, of_number in groupby(names, key=lambda name: name.partition("_")[0]):
        together = list(of_number)
        (output / f"{number}-{scenario}.log").unlink(missing_ok=True)
        for part in allowed.get(together[0], "").split() or [""]:
            yield from run(tests, together, part, scenario, bootstrap, output)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", help="parts of the names of the tests to run; none: all of allowed.txt")
    parser.add_argument("--source", type=Path, help="an unpacked (and maybe built) source instead of Debian's")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the brokers end with us
    output = BUILD / "output"
    output.mkdir(parents=True, exist_ok=True)
    tests = build(options.source or fetch(BUILD))
    scenarios = scenarios_of(tests)
    allowed, left_out = names_in(HERE / "allowed.txt"), names_in(HERE / "left-out.txt")
    wrong = unlisted(allowed, left_out, scenarios)
    for line in wrong:
        print(f"librdkafka: {line}")
    wanted = chosen(options.tests, allowed, scenarios)
    ended: list[Ended] = []
    for scenario in SCENARIOS:
        names = [name for name in wanted if scenarios.get(name) == scenario]
        if not names:
            continue
        with cluster(scenario) as bootstrap:
            for each in of_scenario(scenario, names, allowed, tests, bootstrap, output):
                ended.append(each)
                print(f"{each.name:48}{each.state:12}{each.seconds:8.1f} s", flush=True)
    failed = [each for each in ended if each.state != "PASSED"]
    print(f"librdkafka: {len(ended) - len(failed)} passed, {len(failed)} failed, {len(left_out)} left out")
    return 1 if failed or wrong or not ended else 0


if __name__ == "__main__":
    sys.exit(main())
