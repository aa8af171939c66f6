"""The file that `spark-submit` runs for an export, because it cannot run a package. The job is `export/job.py`."""

import sys

from logyard.spark_jobs.export.job import main

if __name__ == "__main__":
    sys.exit(main())
