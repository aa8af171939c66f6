"""The inputs that fuzzing has found, one file a target in tests/fuzz/corpus: a line each, in base64."""

import base64
from collections.abc import Iterable
from pathlib import Path

CORPUS = Path(__file__).with_name("corpus")
# A corpus stays small: the inputs that reach the most code are short ones.
KEPT_MAX = 80
BYTES_MAX = 1500


def read(target: str) -> list[bytes]:
    """Return a target's inputs."""
    path = CORPUS / f"{target}.txt"
    return [base64.b64decode(line) for line in path.read_text().split()] if path.exists() else []


def add(target: str, findings: Iterable[bytes], others: Iterable[bytes]) -> None:
    """Keep the findings, and the shortest of the inputs that reach something new, beside what is kept already."""
    kept = {*read(target), *findings}
    more = sorted({each for each in others if 0 < len(each) <= BYTES_MAX} - kept, key=lambda each: (len(each), each))
    kept |= set(more[: max(0, KEPT_MAX - len(kept))])
    CORPUS.mkdir(exist_ok=True)
    lines = (base64.b64encode(each).decode() + "\n" for each in sorted(kept, key=lambda each: (len(each), each)))
    (CORPUS / f"{target}.txt").write_text("".join(lines))
