# One image for every service of docker-compose.yaml: brokers, Airflow's components, Spark's master and workers.
FROM python:3.11-slim-bookworm

RUN apt-get update \
    && apt-get install -y --no-install-recommends make openjdk-17-jre-headless procps tini \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/logyard
COPY requirements.lock pyproject.toml README.md LICENSE ./
COPY scripts scripts
COPY broker broker
COPY operators operators
COPY plugins plugins
COPY dags dags
COPY spark_jobs spark_jobs
COPY logyard logyard
COPY docker docker
RUN scripts/setup \
    && useradd --create-home --uid 1000 logyard \
    && mkdir -p /var/lib/logyard /var/lib/airflow /empty \
    && chown -R logyard /var/lib/logyard /var/lib/airflow

ENV PATH=/opt/logyard/.venv/bin:$PATH \
    AIRFLOW_HOME=/var/lib/airflow \
    PYSPARK_PYTHON=/opt/logyard/.venv/bin/python \
    NUMBA_CACHE_DIR=/tmp/numba
USER logyard
ENTRYPOINT ["tini", "--"]
