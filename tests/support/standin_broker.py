"""A program that looks like a broker to the launcher: registers in ZooKeeper, answers two requests, ends on TERM.

Launcher tests use it where a real broker would only be slower. `standin.fail=text` makes it print that and end.
"""

import argparse
import json
import socket
import socketserver
import struct
import sys
import time
from pathlib import Path

from kazoo.client import KazooClient


def read_properties(path: Path) -> dict[str, str]:
    lines = [line for line in path.read_text().splitlines() if "=" in line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def metadata(client: KazooClient) -> bytes:
    ids = client.get_children("/brokers/ids")
    body = struct.pack(">i", len(ids))
    for broker in ids:
        fields = json.loads(client.get(f"/brokers/ids/{broker}")[0])
        body += struct.pack(">i", int(broker)) + text(fields["host"])
        body += struct.pack(">ih", fields["port"], -1)
    controller = json.loads(client.get("/controller")[0])["brokerid"] if client.exists("/controller") else -1
    return body + struct.pack(">ii", controller, 0)


def serve(client: KazooClient, keys: dict[str, str]) -> None:
    port = int(keys["listeners"].rsplit(":", 1)[1])

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            head = self.request.recv(4, socket.MSG_WAITALL)
            if len(head) < 4:
                return
            frame = self.request.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL)
            api, _version, correlation = struct.unpack_from(">hhi", frame)
            body = struct.pack(">hihhh", 0, 1, 3, 0, 1) if api == 18 else metadata(client)
            answer = struct.pack(">i", correlation) + body
            self.request.sendall(struct.pack(">i", len(answer)) + answer)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    with Server(("127.0.0.1", port), Handler) as server:
        broker = int(keys["broker.id"])
        registration = {"host": "127.0.0.1", "port": port, "logyard_http": f"127.0.0.1:{port + 1}"}
        client.create(f"/brokers/ids/{broker}", json.dumps(registration).encode(), ephemeral=True, makepath=True)
        try:
            client.create("/controller", json.dumps({"brokerid": broker}).encode(), ephemeral=True)
        except Exception as error:
            print("not the controller:", error)
        server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path)
    parser.add_argument("--strict", action="store_true")
    keys = read_properties(parser.parse_args().config)
    if "standin.fail" in keys:
        print(keys["standin.fail"], flush=True)
        time.sleep(0.1)
        sys.exit(3)
    client = KazooClient(keys["zookeeper.connect"], timeout=4.0)
    client.start()
    serve(client, keys)


if __name__ == "__main__":
    main()
