"""The broker command of a cluster of both kinds: becomes Apache Kafka's broker for the ids it is told, ours otherwise.

    either_broker.py --kafka 1,2 --jars DIR [--jvm OPTION]… -- --config server.properties --strict

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
    parser.add_argument("--kafka", default="", help="broker ids, comma-separated")
    parser.add_argument("--jars", required=True)
    parser.add_argument("--jvm", action="append", default=[])
    parser.add_argument("rest", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    rest = [word for word in options.rest if word not in ("--", "--strict")]
    config = Path(rest[rest.index("--config") + 1])
    broker = re.search(r"^broker\.id=(\d+)$", config.read_text(), re.MULTILINE)
    assert broker is not None
    if broker[1] not in options.kafka.split(","):
        os.execv(sys.executable, [sys.executable, "-P", "-m", "logyard.broker", *rest])
    java = shutil.which("java")
    assert java is not None
    logging = [f"-Dlog4j.configuration=file:{LOG4J}", "-Dreference.level=INFO"]
    os.execv(java, [java, *options.jvm, *logging, "-cp", f"{options.jars}/*", "kafka.Kafka", str(config)])


if __name__ == "__main__":
    main()
