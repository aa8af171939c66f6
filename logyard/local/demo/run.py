"""Runs the demo: starts the platform, runs the eight steps, writes the report, stops the platform."""

import os
import platform as machine
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from rich.console import Console

from logyard.admin.errors import LogyardError
from logyard.local import interrupts
from logyard.local.demo import dataset
from logyard.local.demo.dags import DagRuns
from logyard.local.demo.progress import Display
from logyard.local.demo.report import Report, StepReport
from logyard.local.demo.site import LocalSite
from logyard.local.demo.steps import DAGS, STEPS, Figures, Yard
from logyard.local.errors import LocalError
from logyard.local.layout import Settings
from logyard.local.platform import Platform, only_one

BROKERS = 3


def run(directory: Path, *, keep: bool = False, secure: bool = False, console: Console | None = None) -> None:
    """Run all steps and write report.json. Raises LocalError with the failed step and the reason.

    `secure`: on a cluster with TLS, log-ins and ACLs.
    At the end everything is stopped, also after a failure, unless `keep` is set.
    """
    directory = directory.absolute()
    console = console or Console()
    with only_one(directory / "demo.lock", "demo"):
        report = Report(datetime.now(timezone.utc).isoformat(timespec="seconds"), _machine())
        display = Display(console)
        platform = Platform(directory, display.note)
        platform.clear()
        started = time.monotonic()
        try:
            _steps(platform, Settings(BROKERS, secure=secure), display, report)
            report.passed = True
        except BaseException as error:
            report.error = str(error) or type(error).__name__
            raise
        finally:
            report.seconds = round(time.monotonic() - started, 1)
            # It may be a full disk that has ended the demo: what was started is stopped all the same.
            unwritten = _write(report, directory / "report.json")
            if not keep:
                with interrupts.ignored():
                    platform.abandon()
            report.print(console)
            console.print(unwritten or f"the same as JSON: {directory / 'report.json'}", highlight=False)
        if unwritten:
            raise LocalError(unwritten)


def _write(report: Report, path: Path) -> str:
    """Write the report; returns why that failed, "" if it did not."""
    try:
        report.write(path)
    except OSError as error:
        return f"the report could not be written to {path}: {error.strerror or error}"
    return ""


def _steps(platform: Platform, settings: Settings, display: Display, report: Report) -> None:
    total = len(STEPS)
    yard: Yard | None = None
    try:
        with _reported(display, report, 0, total, "start", "start ZooKeeper, brokers and Airflow") as figures:
            yard = start_yard(platform, settings, display)
            figures.update(brokers=settings.brokers, secured=settings.secure, airflow=platform.airflow.url)
        for number, step in enumerate(STEPS, start=1):
            with _reported(display, report, number, total, step.name, step.title) as figures:
                figures.update(step.do(yard))
    finally:
        if yard is not None and yard.traffic is not None:
            yard.traffic.close()


@contextmanager
def _reported(display: Display, report: Report, number: int, total: int, name: str, title: str) -> Iterator[Figures]:
    """Time a step, show it, and report its figures; an error gets the step's name."""
    step = StepReport(number, name, title)
    report.steps.append(step)
    started = time.monotonic()
    try:
        with display.step(number, total, title):
            yield step.figures
        step.passed = True
    except (LocalError, LogyardError) as error:
        step.error = str(error)
        raise LocalError(f"step {number} ({name}): {error}") from error
    finally:
        step.seconds = round(time.monotonic() - started, 1)


def start_yard(platform: Platform, settings: Settings, display: Display) -> Yard:
    platform.start(settings)
    airflow = platform.airflow
    dags = DagRuns(airflow.url, "admin", airflow.home.password(), display.note)
    display.note("waiting for the DAGs")
    dags.await_known(DAGS)
    return Yard(site=LocalSite(platform), dags=dags, display=display, flights=dataset.load())


def _machine() -> dict[str, int | float | str | bool | None]:
    return {"cores": len(os.sched_getaffinity(0)), "python": machine.python_version(), "system": machine.platform()}
