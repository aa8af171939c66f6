"""Delete consumer groups with the offsets that they have committed."""

from logyard.dags.factories.delete_groups import delete_groups_dag

dag = delete_groups_dag()  # airflow finds it by this name
