"""The broker command of a cluster of both kinds: becomes Apache Kafka's broker or ours, as the file KINDS says now.

KINDS holds one letter a broker, by id: K for Apache Kafka, O for ours.

    either_broker.py --kinds KINDS --jars DIR [--jvm OPTION]… -- --config server.properties --strict

What follows `--` is what the launcher gives every broker. Without its --strict: both read the same keys, and some
of them only Kafka acts on. A file listeners.json beside KINDS (tests/support/secured.py) adds listeners to the one
that the launcher gives: broker → security protocol → port, or host:port.
"""

import argparse
import json
import os
import re
import shutil
import sys
from pathlib import Path

LOG4J = Path(__file__).resolve().with_name("log4j.properties")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", required=True, type=Path)
    parser.add_argument("--jars", required=True)
    parser.add_argument("--jvm", action="append", default=[])
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    rest = [word for word in options.rest if word not in ("--", "--strict")]
    config = Path(rest[rest.index("--config") + 1])
    broker = re.search(r"^broker\.id=(\d+)$", config.read_text(), re.MULTILINE)
    assert broker is not None
    listeners = options.kinds.with_name("listeners.json")
    if listeners.exists():
        config = with_listeners(config, json.loads(listeners.read_text())[broker[1]])
        rest[rest.index("--config") + 1] = str(config)
    if options.kinds.read_text()[int(broker[1])] == "O":
        os.execv(sys.executable, [sys.executable, "-P", "-m", "logyard.broker", *rest])
    java = shutil.which("java")
    assert java is not None
    logging = [f"-Dlog4j.configuration=file:{LOG4J}", "-Dreference.level=INFO"]
    os.execv(java, [java, *options.jvm, *logging, "-cp", f"{options.jars}/*", "kafka.Kafka", str(config)])


def with_listeners(config: Path, ports: dict[str, int | str]) -> Path:
    """Write the same properties with these listeners too; returns the new file."""
    more = "".join(
        f",{protocol}://{port}" if isinstance(port, str) else f",{protocol}://HOST:{port}"
        for protocol, port in ports.items()
    )
    text, changed = re.subn(
        r"^((?:advertised\.)?listeners=PLAINTEXT://(.*):\d+)$",
        lambda found: found[1] + more.replace("HOST", found[2]),
        config.read_text(),
        flags=re.MULTILINE,
    )
    assert changed == 2
    secured = config.with_name("secured.properties")
    secured.write_text(text)
    return secured


if __name__ == "__main__":
    main()
