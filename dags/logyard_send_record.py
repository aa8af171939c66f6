"""Write one record to a topic."""

from logyard.dags.factories.send_record import send_record_dag

dag = send_record_dag()  # airflow finds it by this name
