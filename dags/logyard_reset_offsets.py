"""Reset the offsets of a consumer group: plan every offset, let a person approve the plan, set the approved offsets."""

from logyard.dags.factories.reset_offsets import reset_offsets_dag

dag = reset_offsets_dag()  # airflow finds it by this name
