"""The decoding process (child.py) as its parent sees it: begun, asked, killed with what it began and wrote."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from multiprocessing.connection import Connection

BEGUN, SCHEMA = b"begun", b"schema"
"""What the process says before an answer: that it runs, and that it has the schema that a question names."""
_ANSWER_BYTES = 5 * 1024 * 1024
_ENVIRONMENT = ("PATH", "PYTHONPATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH")


class DecodingProcess:
    """`folder`: what it writes is there. `step`: how far it is with a question: nothing (it does not run yet), BEGUN,
    or SCHEMA (it has that)."""

    def __init__(self) -> None:
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        # What it and protoc leave behind when they are killed goes with this folder.
        self.folder = tempfile.mkdtemp(prefix="logyard-decoder-")
        self.step = b""
        try:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "logyard.operators.contents.schemas.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment | {"TMPDIR": self.folder},
                start_new_session=True,  # so that its own children are killed with it
            )
        except OSError:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._asks = Connection(os.dup(self._popen.stdin.fileno()), readable=False)
        self._tells = Connection(os.dup(self._popen.stdout.fileno()), writable=False)
        self._popen.stdin.close()
        self._popen.stdout.close()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def has_ended(self) -> bool:
        return self._popen.poll() is not None

    def ask(self, question: bytes, patience_s: float) -> bytes | None:
        """None where it takes longer. Raises EOFError, OSError where the process has ended."""
        deadline = time.monotonic() + patience_s
        self.step = self.step and BEGUN
        while not self.step:
            if not self._tells.poll(max(deadline - time.monotonic(), 0.0)):
                return None
            self.step = self._tells.recv_bytes(_ANSWER_BYTES)
        self._asks.send_bytes(question)
        while self._tells.poll(max(deadline - time.monotonic(), 0.0)):
            said = self._tells.recv_bytes(_ANSWER_BYTES)
            if said != SCHEMA:
                return said
            self.step = SCHEMA
        return None

    def end(self) -> None:
        self._asks.close()
        self._tells.close()
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
