"""The file that `spark-submit` runs for an audit, because it cannot run a package. The job is `audit/job.py`."""

import sys

from logyard.spark_jobs.audit.job import main

if __name__ == "__main__":
    sys.exit(main())
