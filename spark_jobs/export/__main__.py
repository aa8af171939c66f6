"""`python -m logyard.spark_jobs.export`."""

import sys

from logyard.spark_jobs.export.job import main

if __name__ == "__main__":
    sys.exit(main())
