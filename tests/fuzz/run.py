"""Coverage-guided fuzzing of what strangers send before they are known: `make fuzz`.

    python -m tests.fuzz.run --seconds 600            # every target
    python -m tests.fuzz.run --seconds 60 plain jaas  # targets whose names contain one of these
    python -m tests.fuzz.run --keep --seconds 600     # and write what was found into tests/fuzz/corpus

A finding is an input in build/fuzz/TARGET, with the traceback in its log. Add it to the corpus by --keep once it is
mended: the unit tests replay the corpus.
"""

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz import corpora
from tests.fuzz.targets import TARGETS

BUILD = Path(__file__).resolve().parents[2] / "build" / "fuzz"
# An input that takes longer is a finding. It is elapsed time, and the machine may be busy with something else.
INPUT_TIMEOUT_S = 60
LENGTH_MAX = 4096


def fuzz(target: str, seconds: int, *, keeps: bool) -> bool:
    """Fuzz one target; return whether nothing was found."""
    home = BUILD / target
    inputs = home / "inputs"
    inputs.mkdir(parents=True, exist_ok=True)
    for number, each in enumerate(corpora.read(target)):
        (inputs / f"corpus-{number}").write_bytes(each)
    begun = time.monotonic()
    limits = [f"-max_len={LENGTH_MAX}", f"-timeout={INPUT_TIMEOUT_S}", "-rss_limit_mb=3000"]
    log = home / "log"
    status = _run(target, [f"-max_total_time={seconds}", *limits, f"-artifact_prefix={home}/", str(inputs)], log)
    said = re.findall(r"^#(\d+)\s.*?cov: (\d+)", log.read_text(errors="replace"), re.MULTILINE)
    runs, reached = said[-1] if said else ("0", "0")
    verdict = "ok" if status == 0 else f"FOUND SOMETHING: see {log}"
    print(f"{target:22}{time.monotonic() - begun:8.0f} s {runs:>10} inputs, {reached:>5} places  {verdict}", flush=True)
    if keeps:
        findings = [*home.glob("crash-*"), *home.glob("timeout-*")]
        corpora.add(target, (each.read_bytes() for each in findings), (each.read_bytes() for each in inputs.iterdir()))
    return status == 0


def _run(target: str, options: Sequence[str], log: Path) -> int:
    with log.open("wb") as out:
        command = [sys.executable, "-P", "-m", "tests.fuzz.one", target, *options]
        root = str(BUILD.parents[1])
        return subprocess.run(command, cwd=root, env=_environment(root), stdout=out, stderr=out, check=False).returncode


def _environment(root: str) -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": root}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help="parts of the names of targets; none: all")
    parser.add_argument("--seconds", type=int, default=600, help="how long each is fuzzed")
    parser.add_argument("--keep", action="store_true", help="write what was found into tests/fuzz/corpus")
    options = parser.parse_args()
    chosen = [name for name in TARGETS if not options.targets or any(part in name for part in options.targets)]
    results = [fuzz(name, options.seconds, keeps=options.keep) for name in chosen]
    print(f"fuzz: {results.count(True)} targets without a finding, {results.count(False)} with one")
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
