"""The file that `spark-submit` runs for a compaction, because it cannot run a package. The job is `compact/job.py`."""

import sys

from logyard.broker.extras import how_to_install

try:
    from logyard.spark_jobs.command import leave
    from logyard.spark_jobs.compact.job import main
except ModuleNotFoundError as _problem:
    if (_lacking := how_to_install(_problem, "spark")) is None:
        raise
    sys.exit(f"compact: {_lacking}")

if __name__ == "__main__":
    leave(main())
