"""Recover the controller: diagnose it, fence or restart what is broken, and check that the cluster is healthy."""

from logyard.dags.factories.recover_controller import recover_controller_dag

dag = recover_controller_dag()  # airflow finds it by this name
