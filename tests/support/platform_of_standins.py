"""A program that brings a platform up with stand-ins for brokers, says `up`, and waits to be interrupted."""

import sys
import time
from pathlib import Path

from logyard.cli import progress
from logyard.local import interrupts
from logyard.local.layout import Settings
from logyard.local.platform import Platform

STANDIN = (sys.executable, str(Path(__file__).with_name("standin_broker.py")))


def main() -> None:
    interrupts.raise_once()
    platform = Platform(Path(sys.argv[1]), progress.say, broker_command=STANDIN)
    try:
        platform.start(Settings(2))
        progress.say("up")
        time.sleep(600)
    finally:
        platform.abandon()


if __name__ == "__main__":
    main()
