"""The inputs that fuzzing has found, one file a target in tests/fuzz/corpus: a line each, in base64."""

import base64
from collections.abc import Iterable
from pathlib import Path

CORPUS = Path(__file__).with_name("corpus")
# A corpus stays small: the inputs that reach the most code are short ones.
KEPT_MAX = 120
BYTES_MAX = 1500


def read(target: str) -> list[bytes]:
    """Return a target's inputs."""
    path = CORPUS / f"{target}.txt"
    return [base64.b64decode(line) for line in path.read_text().split()] if path.exists() else []


def write(target: str, inputs: Iterable[bytes]) -> int:
    """Keep the shortest of these inputs; return how many."""
    kept = sorted({each for each in inputs if 0 < len(each) <= BYTES_MAX}, key=lambda each: (len(each), each))[
        :KEPT_MAX
    ]
    CORPUS.mkdir(exist_ok=True)
    (CORPUS / f"{target}.txt").write_text("".join(base64.b64encode(each).decode() + "\n" for each in kept))
    return len(kept)
