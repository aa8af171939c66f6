"""The `logyard` command: parses, calls, and reports every error as one line on stderr and an exit status."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

import typer

from logyard.admin.errors import LogyardError, told
from logyard.broker.extras import how_to_install
from logyard.cli import (
    acls,
    airflow,
    brokers,
    cluster,
    configs,
    features,
    groups,
    leaders,
    platform,
    quotas,
    reassign,
    spark,
    story,
    transactions,
    users,
    zk,
)
from logyard.cli.dump_log import command as dump_log
from logyard.cli.topics import command as topics
from logyard.local import interrupts
from logyard.local.errors import LocalError

# These start processes, and end them when they are interrupted.
_STARTING = (["cluster"], ["up"], ["down"], ["demo"])

app = typer.Typer(
    name="logyard",
    help="A yard where partitioned logs are made, moved, mended and shipped, worked from Airflow.",
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
)
app.add_typer(cluster.app, name="cluster")
app.add_typer(topics.app, name="topics")
app.add_typer(reassign.app, name="reassign")
app.add_typer(leaders.app, name="leaders")
app.add_typer(configs.app, name="configs")
app.add_typer(features.app, name="features")
app.add_typer(zk.app, name="zk")
app.add_typer(groups.app, name="groups")
app.add_typer(transactions.app, name="transactions")
app.add_typer(acls.app, name="acls")
app.add_typer(users.app, name="users")
app.add_typer(quotas.app, name="quotas")
app.add_typer(spark.app, name="spark")
app.add_typer(airflow.app, name="airflow")
app.command()(brokers.brokers)
app.command("dump-log")(dump_log.dump_log)
app.command()(story.story)
platform.add_commands(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status: 0 success, 1 refused or failed, 2 misused, 128 + signal."""
    interrupts.raise_once()
    _open_closed()
    # A name that the terminal's encoding has no letters for, or that is no text, ends no command.
    with suppress(AttributeError, ValueError):  # there is no output of a terminal
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    command = typer.main.get_command(app)
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = command.main(given, prog_name="logyard", standalone_mode=False)
    except interrupts.Interrupted as interrupt:
        done = "what this command had started was stopped" if given[:1] in _STARTING else "look at what was done before"
        return _complain(f"interrupted by {interrupt}: {done}", 128 + interrupt.number)
    except (LocalError, LogyardError) as error:
        return _complain(told(error), 1)
    except ModuleNotFoundError as error:
        lacking = how_to_install(error)
        if lacking is None:
            raise
        return _complain(lacking, 1)
    except typer.Abort:
        return _complain("nothing was answered: give the options that answer, see --help", 1)
    except BrokenPipeError:
        # The reader closed the pipe.
        _give_up_output()
        return 1
    except OSError as error:
        if error.filename is None:
            _give_up_output()
        return _complain(f"{'output' if error.filename is None else error.filename}: {error.strerror or error}", 1)
    except Exception as error:
        # Typer's own errors have no public common class; all of them have an exit code.
        status = getattr(error, "exit_code", None)
        if status is None:
            raise
        return _complain(_misuse(error), int(status))
    return status if isinstance(status, int) else 0


def _open_closed() -> None:
    """Who starts a command may have closed its input or output (`<&-`): nothing is read there, and nothing shown."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115  # for the rest of the process
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


def _give_up_output() -> None:
    """What is still buffered must not fail again at exit."""
    with suppress(OSError, ValueError, AttributeError):  # there is none
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _misuse(error: Exception) -> str:
    wording = getattr(error, "format_message", lambda: str(error))()
    if "\n" in wording:  # no command given: print the whole help
        return str(wording)
    # The command that has refused: of what was typed, some words may be no command's.
    command = getattr(getattr(error, "ctx", None), "command_path", "logyard")
    return f"{wording.rstrip('.')}: see `{command} --help`"


def _complain(text: str, status: int) -> int:
    if text:
        with suppress(OSError):  # the error's reader is gone too, or its disk full
            print(text if "\n" in text else f"logyard: {text}", file=sys.stderr, flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
