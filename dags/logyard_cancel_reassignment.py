"""Cancel reassignments that were started outside Airflow: by Kafka's tool, or by a script."""

from logyard.dags.factories.cancel_reassignment import cancel_reassignment_dag

dag = cancel_reassignment_dag()  # airflow finds it by this name
