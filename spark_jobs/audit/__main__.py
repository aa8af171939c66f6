"""`python -m logyard.spark_jobs.audit`."""

import sys

from logyard.spark_jobs.audit.job import main

if __name__ == "__main__":
    sys.exit(main())
