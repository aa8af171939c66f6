"""The bearer token of the HTTP routes: made once, kept in a 0600 file in the first log directory, never logged."""

import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path

from logyard.broker.errors import LogyardError

TOKEN_FILE = "http.token"
TOKEN_CHARACTERS_MIN = 16


def load_or_create(log_dir: str) -> str:
    """Return the token kept in `log_dir`, making it (32 random bytes in hex) at the first start, or if it is cut
    short: an empty one would let everybody in."""
    path = Path(log_dir) / TOKEN_FILE
    with suppress(FileNotFoundError):
        kept = path.read_text().strip()
        if len(kept) >= TOKEN_CHARACTERS_MIN:
            return kept
    token = secrets.token_hex(32)
    aside = path.with_suffix(".tmp")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(token + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
    return token


def load(path: str) -> str:
    """Return the token of `http.token.file`; raises LogyardError if there is none."""
    try:
        token = Path(path).read_text().strip()
    except OSError as error:
        raise LogyardError(f"http.token.file={path}: {error.strerror}; write a long random token into it") from error
    if len(token) < TOKEN_CHARACTERS_MIN:
        raise LogyardError(f"http.token.file={path}: at least {TOKEN_CHARACTERS_MIN} characters are needed")
    return token


def matches(header: str | None, token: str) -> bool:
    """Whether an Authorization header carries the token; compared in constant time."""
    given = header.removeprefix("Bearer ") if header and header.startswith("Bearer ") else ""
    return hmac.compare_digest(given.encode(), token.encode())
