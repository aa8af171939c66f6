"""`logyard dump-log`: the files of partitions as text, as kafka-dump-log.sh prints them."""

import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from logyard.broker.errors import CorruptData
from logyard.local.errors import LocalError

if TYPE_CHECKING:
    from logyard.cli.dump_log.text import Detail, Faults

Dump = Callable[[Path], Iterator[str] | None]

_CHECKPOINTS = (
    "leader-epoch-checkpoint",
    "partition.metadata",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


def dump_log(
    files: Annotated[str, typer.Option("--files", help="Comma-separated: .log, .index, .timeindex, .txnindex, …")],
    print_data_log: Annotated[
        bool, typer.Option("--print-data-log", help="Print records with their keys and values.")
    ] = False,
    deep_iteration: Annotated[bool, typer.Option("--deep-iteration", help="Print records, not only batches.")] = False,
    index_sanity_check: Annotated[
        bool, typer.Option("--index-sanity-check", help="Indexes: only the checks that a broker makes at start.")
    ] = False,
    verify_index_only: Annotated[
        bool, typer.Option("--verify-index-only", help="Indexes: compare with the log without printing entries.")
    ] = False,
    skip_record_metadata: Annotated[
        bool, typer.Option("--skip-record-metadata", help="With --print-data-log: print only keys and values.")
    ] = False,
    offsets_decoder: Annotated[
        bool, typer.Option("--offsets-decoder", help="Decode records of __consumer_offsets, as JSON.")
    ] = False,
    transaction_log_decoder: Annotated[
        bool, typer.Option("--transaction-log-decoder", help="Decode records of __transaction_state.")
    ] = False,
    max_bytes: Annotated[
        int | None, typer.Option("--max-bytes", min=0, help="Stop after this many bytes of a .log.")
    ] = None,
) -> None:
    """Show segments, indexes, producer snapshots and checkpoints; the exit status is 1 if any of them is wrong.

    Example:

    \b
        logyard dump-log --files /tmp/yard/broker-0/data/flights-0/00000000000000000000.log --print-data-log
        logyard dump-log --files 00000000000000000000.index,00000000000000000000.timeindex --verify-index-only
    """
    # The codecs are loaded only when they are needed.
    from logyard.cli.dump_log import offsets, text, transaction_log

    faults = text.Faults()
    decode: text.Decode | None = None
    if offsets_decoder or transaction_log_decoder:
        decode = offsets.decode if offsets_decoder else transaction_log.decode
    contents = print_data_log or skip_record_metadata or decode is not None
    detail = text.Detail(deep_iteration, contents, skip_record_metadata, decode, max_bytes)
    dump = _dump_by_name(detail, faults, sanity_only=index_sanity_check, verify_only=verify_index_only)
    for name in files.split(","):
        _print(Path(name), dump, faults)
    sys.stdout.flush()
    for line in [*faults.notes, *faults.lines]:
        typer.echo(line, err=True)
    if faults:
        raise LocalError("these files have errors: see above")


def _dump_by_name(detail: "Detail", faults: "Faults", *, sanity_only: bool, verify_only: bool) -> Dump:
    """The dump of a file by its kind; None for an unknown kind."""
    from logyard.cli.dump_log import text

    def dump(path: Path) -> Iterator[str] | None:
        match path.suffix:
            case ".log":
                return text.dump_log(path, detail, faults)
            case ".index":
                return text.dump_index(path, faults, sanity_only=sanity_only, verify_only=verify_only)
            case ".timeindex":
                return text.dump_time_index(path, faults, sanity_only=sanity_only, verify_only=verify_only)
            case ".snapshot":
                return text.dump_snapshot(path)
            case ".txnindex":
                return text.dump_transactions(path)
        return text.dump_checkpoint(path) if path.name in _CHECKPOINTS else None

    return dump


def _print(path: Path, dump: Dump, faults: "Faults") -> None:
    sys.stdout.write(f"Dumping {path}\n")
    try:
        lines = dump(path)
        if lines is None:
            if stat.S_ISDIR(path.stat().st_mode):
                raise LocalError(f"--files {path}: this is a directory: name files in it")
            sys.stdout.flush()
            typer.echo(f"Ignoring unknown file {path}", err=True)
        else:
            sys.stdout.writelines(f"{line}\n" for line in lines)
    except CorruptData as problem:
        faults.lines.append(str(problem))
    except BrokenPipeError:
        raise
    except OSError as problem:
        if problem.filename is None:
            raise  # it is the output's
        raise LocalError(f"--files {problem.filename}: {problem.strerror}") from None
