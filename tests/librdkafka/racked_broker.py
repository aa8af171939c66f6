"""Starts a broker in a rack of its own, RACK<broker.id>: `python racked_broker.py --config FILE …`."""

import re
import sys
from pathlib import Path

from logyard.broker.__main__ import main

if __name__ == "__main__":
    properties = Path(sys.argv[sys.argv.index("--config") + 1]).read_text()
    broker_id = re.search(r"^broker\.id=(\d+)", properties, re.MULTILINE)
    assert broker_id is not None, "the launcher numbers its brokers"
    sys.exit(main([*sys.argv[1:], "--override", f"broker.rack=RACK{broker_id[1]}"]))
