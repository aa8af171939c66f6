"""Set where a consumer group reads on: plan every offset, have a person approve it, set what was approved."""

from logyard.dags.factories.reset_offsets import reset_offsets_dag

dag = reset_offsets_dag()  # airflow finds it by this name
