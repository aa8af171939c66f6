"""`python -m logyard.broker --config FILE [--override key=value]…`: one broker in the foreground."""

import argparse
import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from pathlib import Path
from typing import TextIO, cast

from logyard.broker.errors import LogyardError
from logyard.broker.extras import how_to_install
from logyard.broker.late_import import as_if_missing

# What imports make stays: collections would look at it again and again, a fifth of the time that imports take.
gc.disable()
try:
    # structlog colours its lines with them; the broker writes its own.
    with as_if_missing("rich", "colorama", "better_exceptions", "greenlet"):
        import structlog
    import uvloop

    from logyard.broker import log_format, tasks
    from logyard.broker.broker import Broker
    from logyard.broker.config import providers
    from logyard.broker.config.broker import BrokerConfig
    from logyard.broker.config.properties import parse_properties
    from logyard.broker.log_levels import LEVELS, ROOT, LogLevels, NamedLogger
    from logyard.broker.log_stream import LossyStream
    from logyard.broker.records import pauses
except ModuleNotFoundError as _problem:
    if (_lacking := how_to_install(_problem, "broker")) is None:
        raise
    raise SystemExit(f"logyard.broker: {_lacking}") from None
finally:
    gc.enable()

EXAMPLE = """example:
  python -m logyard.broker --config server.properties --override broker.id=1 --override listeners=PLAINTEXT://127.0.0.1:9092

FILE is Kafka's server.properties with Kafka's own keys; ${file:…}, ${dir:…} and ${env:…} are values by
config.providers (docs/security.md). A key that is unknown or has no effect is a warning; with
--strict it is an error."""


def main(arguments: list[str] | None = None) -> int:
    """Run one broker until SIGTERM or SIGINT; returns the exit status."""
    if sys.version_info < (3, 11):  # noqa: UP036  # the package itself is for 3.10 too
        print("logyard.broker: a broker needs Python 3.11 or later", file=sys.stderr)
        return 1
    options = _parse(arguments)
    try:
        config = _read_config(options)
    except (LogyardError, OSError) as error:
        print(f"logyard.broker: {error}", file=sys.stderr)
        return 1
    levels = LogLevels()
    configure_logging(config.broker_id, levels)
    log = structlog.get_logger("logyard.broker")
    for warning in config.warnings:
        log.warning("config", note=warning)
    _raise_open_file_limit()
    try:
        return uvloop.run(_run(config, levels))
    except (LogyardError, OSError) as error:
        log.error("the broker failed", error=str(error))
        print(f"logyard.broker: {error}", file=sys.stderr)
        return 1


async def _run(config: BrokerConfig, levels: LogLevels) -> int:
    broker = Broker(config, log_levels=levels)
    broker.before_serving = _spare_the_collector
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(tasks.uncaught)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, broker.stop)
    return await broker.run()


def _spare_the_collector() -> None:
    """Exclude all objects made so far from garbage collection.

    They live as long as the process does, and a collection over a thousand partitions is a pause of 60 ms.
    """
    gc.collect()
    gc.freeze()


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m logyard.broker",
        description="Run one Logyard broker in the foreground.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", required=True, help="server.properties, with Kafka's keys")
    parser.add_argument(
        "--override", metavar="KEY=VALUE", action="append", default=[], help="wins over FILE; repeatable"
    )
    parser.add_argument("--strict", action="store_true", help="an unknown or unused key is an error")
    return parser.parse_args(arguments)


def _read_config(options: argparse.Namespace) -> BrokerConfig:
    overrides = {}
    for pair in options.override:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise LogyardError(f"--override {pair}: write it as key=value")
        overrides[key] = value
    try:
        text = Path(options.config).read_text()
    except OSError as error:
        raise LogyardError(f"--config {options.config}: {error.strerror}") from error
    try:
        given = {**parse_properties(text), **overrides}
        settings = providers.resolved(given, providers.Sources(_read_text, os.environ))
    except ValueError as problem:
        raise LogyardError(f"--config {options.config}: {problem}") from None
    return BrokerConfig.parse("", settings, strict=options.strict)


def _read_text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def configure_logging(broker_id: int, levels: LogLevels) -> None:
    """Log one line per event to stdout: time, level, broker, what happened, key=value; what `levels` let through."""
    stream = cast(TextIO, LossyStream(sys.stdout))
    handler = logging.StreamHandler(stream)
    handler.setFormatter(log_format.LineFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    levels.follow(lambda: handler.setLevel(LEVELS[levels.level(ROOT)]))
    structlog.configure(
        processors=[
            levels.filtered,
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S.%f", utc=False),
            structlog.processors.format_exc_info,
            log_format.line,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=lambda name="": NamedLogger(name, stream),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(broker=broker_id)


def _raise_open_file_limit() -> None:
    """Raise the limit of open files as far as the system allows: partitions need many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    status = main()
    pauses.end()
    sys.exit(status)
