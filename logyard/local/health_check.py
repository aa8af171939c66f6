"""The health check of docker-compose.yaml's services: it asks a service's own URL, and ends with 0 if all is well.

    python -m logyard.local.health_check https://127.0.0.1:8082/health --authority /run/logyard/ca.pem
    python -m logyard.local.health_check http://airflow-api-server:8080/api/v2/monitor/health --component triggerer

`--component`: the answer is Airflow's list of its components, and this one has to be healthy.
"""

import argparse
import http.client
import json
import ssl
import sys
import urllib.request
from collections.abc import Sequence

ANSWER_S = 10.0
ANSWER_BYTES = 1 << 20


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url")
    parser.add_argument("--authority", help="PEM file of the authority that signed the service's certificate")
    parser.add_argument("--component", help="the component of Airflow that has to be healthy")
    options = parser.parse_args(arguments)
    problem = problem_of(options.url, options.authority, options.component)
    if problem:
        print(problem, file=sys.stderr)
    return 1 if problem else 0


def problem_of(url: str, authority: str | None = None, component: str | None = None) -> str:
    """Return what is wrong with the service at `url`, "" if nothing is."""
    try:
        trusted = ssl.create_default_context(cafile=authority) if authority else None
        # No proxy: the service is in this container or beside it.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted)
        )
        with opener.open(url, timeout=ANSWER_S) as answer:
            said = answer.read(ANSWER_BYTES)
    # URLError and HTTPError are OSErrors; ValueError: the URL is none; HTTPException: what answers is no HTTP.
    except (OSError, ValueError, http.client.HTTPException) as error:
        return f"{url}: {str(error).strip() or type(error).__name__}"
    return _problem_of_component(said, component) if component else ""


def _problem_of_component(said: bytes, component: str) -> str:
    try:
        status = json.loads(said)[component]["status"]
    except (ValueError, KeyError, TypeError):
        return f"the answer says nothing of {component}"
    return "" if status == "healthy" else f"{component} is {status}"


if __name__ == "__main__":
    sys.exit(main())
