"""Writing a file atomically: readers see all of it or none."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def write_atomically(path: str, content: str | bytes) -> None:
    """Write a file under another name, then rename it; text as UTF-8."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with draft_of(path) as draft, open(draft, "xb") as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def draft_of(path: str) -> Iterator[str]:
    """Yield another name for the file; what is written there gets the file's own at the end, and is durable then.

    No other writer has that name, whichever host it is on: processes in containers mostly have the same number. If it
    cannot be written, because the disk is full, what was written is deleted: tries would fill it further.
    """
    draft = f"{path}.{uuid.uuid4().hex}.tmp"
    try:
        yield draft
        sync(draft)
        os.replace(draft, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(draft)
        raise


def sync(path: str) -> None:
    """Make a file's content durable."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
