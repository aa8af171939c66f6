"""Run by the Python of a host: `operator_on_host.py compact '{"topics": ["t"]}'` runs that operator of ours, with the
connections of its environment, as a task does, and prints its result as JSON in the last line."""

import json
import sys

from logyard.operators.spark import AuditSegmentsOperator, CompactSegmentsOperator, ExportSegmentsOperator
from tests.support.airflow_tasks import context

OPERATORS = {"audit": AuditSegmentsOperator, "compact": CompactSegmentsOperator, "export": ExportSegmentsOperator}


def main() -> None:
    job, arguments = sys.argv[1], json.loads(sys.argv[2])
    operator = OPERATORS[job](task_id=job, **arguments)
    found = operator.execute(context())
    print(f"\n{json.dumps(found)}")


main()
