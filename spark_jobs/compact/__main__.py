"""`python -m logyard.spark_jobs.compact`."""

import sys

from logyard.spark_jobs.compact.job import main

if __name__ == "__main__":
    sys.exit(main())
