"""Writing a file atomically: readers see all of it or none."""

import os


def write_atomically(path: str, content: str | bytes) -> None:
    """Write a file under another name, then rename it; text as UTF-8."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
