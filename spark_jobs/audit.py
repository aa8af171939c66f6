"""The file that `spark-submit` runs for an audit, because it cannot run a package. The job is `audit/job.py`."""

import sys

from logyard.broker.extras import how_to_install
from logyard.spark_jobs.session import ahead

if __name__ == "__main__" and not {"-h", "--help"} & set(sys.argv):
    # An audit needs workers in any case: they are prepared while the rest is imported.
    ahead("audit")

try:
    from logyard.spark_jobs.audit.job import main
    from logyard.spark_jobs.command import leave
except ModuleNotFoundError as _problem:
    if (_lacking := how_to_install(_problem, "spark")) is None:
        raise
    sys.exit(f"audit: {_lacking}")

if __name__ == "__main__":
    leave(main())
