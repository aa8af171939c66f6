"""The file that `spark-submit` runs for a compaction, because it cannot run a package. The job is `compact/job.py`."""

import sys

from logyard.spark_jobs.compact.job import main

if __name__ == "__main__":
    sys.exit(main())
