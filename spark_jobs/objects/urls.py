"""Addresses of object stores: which URLs name one, and the form in which the library takes them."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from logyard.broker.errors import LogyardError
from logyard.login.addresses import has_login, without_login

# Scheme → the store's kind.
SCHEMES = {
    "s3": "S3",
    "s3a": "S3",
    "gs": "GCS",
    "gcs": "GCS",
    "az": "Azure",
    "azure": "Azure",
    "abfs": "Azure",
    "abfss": "Azure",
    "wasb": "Azure",
    "wasbs": "Azure",
}
_LIBRARYS = {"s3a": "s3", "gcs": "gs", "azure": "az", "wasb": "abfs", "wasbs": "abfss"}
_AZURE_HOST = re.compile(r"[a-z0-9]{3,24}\.(?:blob|dfs)\.[a-z0-9.-]+")


class BadUrl(LogyardError):
    """A URL does not name a place in an object store; the text says what to write."""


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A folder in a bucket or container. `url` is the library's form, without a slash at the end."""

    kind: str
    url: str


def is_object_store(destination: str) -> bool:
    """Whether a destination is the URL of an object store."""
    scheme, colon, rest = destination.partition(":")
    return bool(colon) and rest.startswith("//") and scheme.lower() in SCHEMES


def parse(destination: str) -> StoreUrl:
    """Return the place that a URL names; raises BadUrl.

    The root of a bucket is refused: an export's names (`data/`, `_manifest/`) would lie beside everybody's. So are
    credentials, which belong in a file or the environment.
    """
    try:
        url = urlsplit(destination)
    except ValueError:
        raise BadUrl(f"{_shown(destination)}: it cannot be read as a URL") from None
    scheme = url.scheme.lower()
    path = url.path.strip("/")
    if "?" in destination or "#" in destination:
        raise BadUrl(f"{_shown(destination)}: a store's URL has no '?' or '#'")
    if has_login(destination) or (url.username is not None and not scheme.startswith(("abfs", "wasb"))):
        raise BadUrl(f"{_shown(destination)}: credentials do not belong in a URL: give --store FILE")
    if not url.netloc or not path:
        raise BadUrl(f"{_shown(destination)}: name a bucket and a folder in it, such as {scheme}://BUCKET/FOLDER")
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise BadUrl(f"{_shown(destination)}: a part of the path is empty, '.' or '..'")
    host = url.netloc
    if scheme.startswith("wasb"):
        host = host.replace(".blob.", ".dfs.", 1)
    if scheme.startswith(("abfs", "wasb")) and "@" in host and not _AZURE_HOST.fullmatch(host.rpartition("@")[2]):
        raise BadUrl(f"{_shown(destination)}: write {scheme}://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER")
    return StoreUrl(SCHEMES[scheme], f"{_LIBRARYS.get(scheme, scheme)}://{host}/{path}")


def _shown(destination: str) -> str:
    """Return a URL without what may be a secret in it."""
    return without_login(destination).partition("?")[0].partition("#")[0]
