"""`make test`: its stages one after the other, then how long each took, and a warning of one that took too long.

The first that fails ends it. Minutes are of two cores that have nothing else to do; nothing fails for them.
"""

import os
import subprocess
import sys
import time

# make's target: the minutes that it may take.
STAGES = {"test-unit": 7, "test-simulation": 3, "test-integration": 12, "test-matrix": 2, "test-reference": 1}


def line(stage: str, seconds: float) -> str:
    """What is said of a stage that is over."""
    minutes, allowed = seconds / 60, STAGES[stage]
    warning = "" if minutes <= allowed else ": TOO LONG; see `pytest --durations=30`, and what is `long`"
    return f"  {stage:18}{minutes:6.1f} of {allowed} minutes{warning}"


def main() -> int:
    make = os.environ.get("MAKE", "make")
    lines: list[str] = []
    status = 0
    for stage in STAGES:
        begun = time.monotonic()
        status = subprocess.run([make, "--no-print-directory", stage], check=False).returncode
        lines.append(line(stage, time.monotonic() - begun) + ("" if status == 0 else ": FAILED"))
        if status:
            break
    print("\n".join(lines), flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
