"""What a long command says while it works, on standard error: results alone are on standard output."""

import sys


def say(text: str) -> None:
    """Write a line. In one piece: several threads of `logyard up` say what they do."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
