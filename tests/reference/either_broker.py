"""The broker command of a cluster of both kinds: becomes Apache Kafka's broker or ours, as the file KINDS says now.

KINDS holds one letter a broker, by id: K for Apache Kafka, O for ours.

    either_broker.py --kinds KINDS --jars DIR [--jvm OPTION]… -- --config server.properties --strict

What follows `--` is what the launcher gives every broker. Without its --strict: both read the same keys, and some
of them only Kafka acts on.
"""

import argparse
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
    if options.kinds.read_text()[int(broker[1])] == "O":
        os.execv(sys.executable, [sys.executable, "-P", "-m", "logyard.broker", *rest])
    java = shutil.which("java")
    assert java is not None
    logging = [f"-Dlog4j.configuration=file:{LOG4J}", "-Dreference.level=INFO"]
    os.execv(java, [java, *options.jvm, *logging, "-cp", f"{options.jars}/*", "kafka.Kafka", str(config)])


if __name__ == "__main__":
    main()
