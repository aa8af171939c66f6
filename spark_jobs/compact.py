"""The file that `spark-submit` runs for a compaction: it takes no package. The job itself is `compact/job.py`."""

import sys

from logyard.spark_jobs.compact.job import main

if __name__ == "__main__":
    sys.exit(main())
