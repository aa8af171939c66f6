"""Cancel moves that another tool has started: look, have a person approve it, cancel just that."""

from logyard.dags.factories.cancel_reassignment import cancel_reassignment_dag

dag = cancel_reassignment_dag()  # airflow finds it by this name
