"""Bring the controller back: diagnose, fence or restart what has to be, and prove that the cluster is whole."""

from logyard.dags.factories.recover_controller import recover_controller_dag

dag = recover_controller_dag()  # airflow finds it by this name
