"""`python -m logyard.spark_jobs.maintenance`."""

import sys

from logyard.spark_jobs.maintenance.job import main

if __name__ == "__main__":
    sys.exit(main())
