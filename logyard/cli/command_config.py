"""`--command-config FILE`: Kafka's client properties, read into the settings of the admin client."""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from logyard.admin.settings import ClusterSettings
from logyard.local.errors import LocalError
from logyard.local.scram_users import login_module

USUAL_PORT = 9092
_MILLISECONDS = {"request.timeout.ms": "request_timeout_s", "default.api.timeout.ms": "total_timeout_s"}
_HOST_NAMES = "ssl.endpoint.identification.algorithm"
# Of these, a file that others can read is warned about.
_SECRET = re.compile(r"password|secret|sasl\.jaas\.config|\.key(\.pem)?$")
_OTHERS_READ = 0o004
_BLANKS = " \t\f"
_PAIR = re.compile(r"([^#!\s=:][^=:\s]*)[ \t\f]*[=:][ \t\f]*(.*?)[ \t\f]*$")


def read(path: Path, option: str = "--command-config") -> dict[str, str]:
    """Parse the properties in the file: `key=value` lines, # and ! for comments, a backslash joins lines.

    Raises LocalError if there is no such file or a line is not a property.
    """
    try:
        text = path.read_text(encoding="utf-8")
        mode = path.stat().st_mode
    except OSError as error:
        raise LocalError(f"{option} {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise LocalError(f"{option} {path}: UTF-8 text is expected") from None
    found: dict[str, str] = {}
    for number, line in _lines(text):
        pair = _PAIR.match(line)
        if pair is None:
            # Not the line itself, which may hold a password.
            raise LocalError(f"{option} {path}: line {number} is not key=value")
        found[pair.group(1)] = _unescaped(pair.group(2))
    if mode & _OTHERS_READ and any(_SECRET.search(key) for key in found):
        print(f"logyard: warning: {path} holds a password and others can read it: chmod 600 {path}", file=sys.stderr)
    return found


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that say something, each with its number: as java.util.Properties joins them.

    A backslash at the end joins, but two of them are one backslash, and no comment goes on in the next line.
    """
    before = ""
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = before + line.lstrip(_BLANKS)
        before = ""
        if not line or line[0] in "#!":
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            before = line[:-1]
        else:
            yield number, line
    if before:
        yield number, before


def of_user(given: Mapping[str, str], user: str, mechanism: str, password: str) -> dict[str, str]:
    """Return properties with which that user logs in where `given` lead, by SCRAM.

    Raises LocalError if `given` lead to a listener without log-ins.
    """
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if not protocol.startswith("SASL_"):
        raise LocalError(f"--client-config: --command-config leads to a listener for {protocol}, where nobody logs in")
    kept = {key: value for key, value in given.items() if not key.startswith("sasl.")}
    return {**kept, "sasl.mechanism": mechanism, "sasl.jaas.config": login_module(user, password)}


def write(path: Path, properties: Mapping[str, str], option: str) -> None:
    """Write a new file that only its owner reads. Raises LocalError, also if it is there."""
    text = "".join(f"{key}={_escaped(value)}\n" for key, value in properties.items())
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as problem:
        raise LocalError(f"{option} {path}: {problem.strerror}") from None


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    # Blanks at the ends are read as part of the value only like this.
    return re.sub(r"^[ \f]|[ \f]$", lambda found: f"\\u{ord(found[0]):04x}", text)


def _unescaped(value: str) -> str:
    """A value of java.util.Properties: \\n is a line break, \\\\ a backslash (inline PEM has the former)."""
    known = {"n": "\n", "t": "\t", "r": "\r"}

    def meant(found: re.Match[str]) -> str:
        return chr(int(found[1], 16)) if found[1] else known.get(found[2], found[2])

    text = re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", meant, value)
    # Java writes a letter beyond the first 65,536 as two.
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def settings(bootstrap: str, properties: Mapping[str, str]) -> ClusterSettings:
    """Return settings for the admin client: Kafka's or librdkafka's names of security, and the timeouts.

    Raises LocalError for a wrong timeout and for an address without a port, which Kafka's tools refuse too
    (kafka-python would add 9092); BadSettings for other properties that cannot be used.
    """
    extra: dict[str, object] = dict(properties)
    for key, name in _MILLISECONDS.items():
        if key in properties:
            extra[name] = _milliseconds(key, properties[key]) / 1000
    # Empty, it switches the check off, and empty settings count as absent.
    if properties.get(_HOST_NAMES) == "":
        extra[_HOST_NAMES] = "none"
    found = replace(ClusterSettings.read(bootstrap, extra), waits_for_names=False)
    for server in found.bootstrap:
        if ":" not in server:
            raise LocalError(f"--bootstrap-server {server}: host:port is expected, such as {server}:{USUAL_PORT}")
    return found


def _milliseconds(key: str, value: str) -> int:
    if not value.isdecimal() or len(value) > 15:
        raise LocalError(f"--command-config: {key}={value}: a number of milliseconds is expected")
    return int(value)
