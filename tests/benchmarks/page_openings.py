"""What people wait for when they open the list of 10,000 topics again and again, and what that wait is made of.

    python -m tests.benchmarks.page_openings [--openings 8] [--pause 6]

Every opening finds a state of the cluster that is no longer fresh: `--pause` seconds are longer than a state is kept.
For each: ms from the page's first file to the first rows, ms of the request for the topics, CPU ms of the server's
process meanwhile, reads of the cluster that ended meanwhile.
"""

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from logyard.plugins.logyard_ui.cache.worker import IDLE_S
from tests.support import airflow_home
from tests.support.browser import Browser
from tests.support.page_host import hosted, large_cluster
from tests.support.page_steps import FIRST_ROWS, OPENED, PAGE

TOPICS, PARTITIONS, BROKERS = 10_000, 6, 12
# Milliseconds that the request for the topics took, as the browser saw it.
ASKED = """
const found = performance.getEntriesByType('resource').find((entry) => entry.name.includes('/api/topics'));
return found ? Math.round(found.responseEnd - found.startTime) : null;
"""


def openings(count: int, pause_s: float, directory: Path) -> list[dict[str, Any]]:
    """The figures of each opening; the first is the browser's first, which has everything to fetch."""
    airflow_home.prepare()
    cluster = large_cluster(TOPICS, PARTITIONS, BROKERS)
    found = []
    with hosted(cluster, idle_s=IDLE_S) as url, Browser.start(directory) as browser:
        browser.before_every_page(FIRST_ROWS)
        for _ in range(count):
            cpu, looks = time.process_time(), cluster.looks
            browser.goto(f"{url}/{PAGE}?view=topics")
            browser.wait_for("table[aria-label=Topics] tbody a", 60)
            opened = browser.script(OPENED)
            found.append(
                {
                    "rows_ms": opened["view"],
                    "topics_ms": browser.script(ASKED),
                    "server_cpu_ms": round((time.process_time() - cpu) * 1000),
                    "reads": cluster.looks - looks,
                }
            )
            # Elsewhere in the meantime: a page that stays open would keep the state fresh.
            browser.goto(f"{url}/static/")
            time.sleep(pause_s)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--openings", type=int, default=8)
    parser.add_argument("--pause", type=float, default=6.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="openings-") as home:
        found = openings(asked.openings, asked.pause, Path(home))
    for one in found:
        print(json.dumps(one))
    warm = [one["rows_ms"] for one in found[1:]] or [found[0]["rows_ms"]]
    print(f"warm, ms to the first rows: median {statistics.median(warm):.0f}, longest {max(warm)}")


if __name__ == "__main__":
    main()
