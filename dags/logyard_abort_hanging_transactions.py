"""Abort hanging transactions: find them, let a person approve, end exactly those that still hang."""

from logyard.dags.factories.abort_hanging_transactions import abort_hanging_transactions_dag

dag = abort_hanging_transactions_dag()  # airflow finds it by this name
