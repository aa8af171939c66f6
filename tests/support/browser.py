"""Chromium without a window, driven by chromedriver over the W3C WebDriver protocol: as much of it as our tests need.

    with Browser.start(directory) as browser:
        browser.goto(url)
        browser.fill("input[name=username]", "admin")
        browser.click("//button[normalize-space()='Sign in']")
        browser.wait_for("h1")

Elements are found by CSS, or by XPath where the text begins with `/` or `(`. Nothing outside this machine is reached.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import httpx

from logyard.local.ports import HOST, free_port
from tests.support.needed import lacks
from tests.support.pauses import Pauses

WAIT_S = 20.0
_STARTS_S = 20.0
# The name under which the protocol hands out references to elements (WebDriver, section 12.1).
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
# Keys without a character, as the protocol writes them (WebDriver, section 17.4.2).
_KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "ArrowUp": "\ue013", "ArrowDown": "\ue015", "Tab": "\ue004"}
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--hide-scrollbars",
    f"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE {HOST}",
)


class BrowserError(AssertionError):
    """The browser refused something, or what was waited for did not come."""


def missing() -> str:
    """Why there is no browser on this machine; empty where there is one."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(absent)} not installed (Debian: chromium, chromium-driver)" if absent else ""


def browser_or_skip() -> None:
    """Skip the test that needs one; fail it where everything has to be there."""
    if absent := missing():
        lacks(absent)


class Browser:
    """One session of one Chromium with a profile of its own."""

    def __init__(self, driver: "subprocess.Popen[bytes]", base: str) -> None:
        self._driver = driver
        self._http = httpx.Client(base_url=base, timeout=60, trust_env=False)
        self._session = ""

    @classmethod
    def start(cls, directory: Path, size: tuple[int, int] = (1440, 900), dark: bool = False) -> Self:
        """Start chromedriver and Chromium; `directory` holds the profile and the driver's log."""
        directory.mkdir(parents=True, exist_ok=True)
        port = free_port()
        command = ["chromedriver", f"--port={port}", "--allowed-ips=", f"--log-path={directory / 'chromedriver.log'}"]
        driver = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=directory, start_new_session=True
        )
        browser = cls(driver, f"http://{HOST}:{port}")
        try:
            browser.begin(directory / "profile", size, dark)
        except BaseException:
            browser.close()
            raise
        return browser

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End Chromium and the driver, whatever state they are in."""
        with suppress(httpx.HTTPError):
            if self._session:
                self._http.delete(f"/session/{self._session}")
        self._http.close()
        # Chromium's processes are children of the driver: what a refused goodbye left goes with its group.
        with suppress(ProcessLookupError):
            _signal_group(self._driver.pid, signal.SIGTERM)
        try:
            self._driver.wait(5)
        except subprocess.TimeoutExpired:
            _signal_group(self._driver.pid, signal.SIGKILL)
            self._driver.wait(5)

    # -- pages ------------------------------------------------------------------------------------

    def goto(self, url: str) -> None:
        self._send("POST", "url", {"url": url})

    def address(self) -> str:
        return str(self._send("GET", "url"))

    def back(self) -> None:
        self._send("POST", "back", {})

    def script(self, text: str, *arguments: Any) -> Any:
        """The value that the function body `text` returns; a promise is waited for."""
        return self._send("POST", "execute/sync", {"script": text, "args": list(arguments)})

    def before_every_page(self, text: str) -> None:
        """Run a script in each page that is opened from now on, before any of its own."""
        content = {"cmd": "Page.addScriptToEvaluateOnNewDocument", "params": {"source": text}}
        self._send("POST", "goog/cdp/execute", content)

    def screenshot(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self._send("GET", "screenshot")))

    def downloads_into(self, folder: Path) -> None:
        """Keep what pages let people save in a folder."""
        params = {"behavior": "allow", "downloadPath": str(folder)}
        self._send("POST", "goog/cdp/execute", {"cmd": "Page.setDownloadBehavior", "params": params})

    def console(self) -> list[dict[str, Any]]:
        """What the console got since the last call: {level, message, source}."""
        return list(self._send("POST", "se/log", {"type": "browser"}))

    def resize(self, width: int, height: int) -> None:
        """Show pages as on a screen of that size; a window itself cannot be as narrow as a phone."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._send("POST", "goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics})

    def clear(self) -> None:
        """Leave the page, forget its size and what the console got."""
        self.goto("about:blank")
        self._send("POST", "goog/cdp/execute", {"cmd": "Emulation.clearDeviceMetricsOverride", "params": {}})
        self.console()

    # -- elements ---------------------------------------------------------------------------------

    def find(self, where: str) -> list[str]:
        """References to the elements there, those that are not shown too."""
        way = "xpath" if where.startswith(("/", "(")) else "css selector"
        found = self._send("POST", "elements", {"using": way, "value": where})
        return [element[_ELEMENT] for element in found]

    def wait_for(self, where: str, timeout_s: float = WAIT_S) -> str:
        """The first element there that is shown. Raises BrowserError."""
        deadline, pauses = time.monotonic() + timeout_s, Pauses()
        while True:
            for element in self.find(where):
                with suppress(BrowserError):  # gone in the meantime
                    if self._send("GET", f"element/{element}/displayed"):
                        return element
            if time.monotonic() > deadline:
                raise BrowserError(f"nothing shown at {where} within {timeout_s} s, at {self.address()}: {self.text()}")
            pauses.sleep()

    def wait_gone(self, where: str, timeout_s: float = WAIT_S) -> None:
        deadline, pauses = time.monotonic() + timeout_s, Pauses()
        while self.find(where):
            if time.monotonic() > deadline:
                raise BrowserError(f"still there after {timeout_s} s: {where}")
            pauses.sleep()

    def wait_text(self, text: str, timeout_s: float = WAIT_S) -> None:
        """Wait until the page shows a text."""
        deadline, pauses = time.monotonic() + timeout_s, Pauses()
        while text not in (shown := self.text()):
            if time.monotonic() > deadline:
                raise BrowserError(f"no {text!r} within {timeout_s} s, at {self.address()}: {shown}")
            pauses.sleep()

    def click(self, where: str, timeout_s: float = WAIT_S) -> None:
        """Click as a person does: what is covered or moves away is tried again until the time is over."""
        deadline, pauses = time.monotonic() + timeout_s, Pauses()
        while True:
            element = self.wait_for(where, timeout_s)
            try:
                self._send("POST", f"element/{element}/click", {})
                return
            except BrowserError:
                if time.monotonic() > deadline:
                    raise
                pauses.sleep()

    def fill(self, where: str, text: str) -> None:
        """Put a text into a field, instead of what is there."""
        element = self.wait_for(where)
        while True:
            self._send("POST", f"element/{element}/clear", {})
            self._send("POST", f"element/{element}/value", {"text": text})
            # React may put back what was cleared if it renders between the two: a 9 that is to be 1 is 91 then.
            now = str(self._send("GET", f"element/{element}/property/value") or "")
            if now == text or not now.endswith(text):
                return

    def press(self, keys: str) -> None:
        """Press one key that has a name (Enter, Escape, ArrowUp, ArrowDown, Tab), or each of these characters."""
        pressed = [_KEYS[keys]] if keys in _KEYS else list(keys)
        actions = [{"type": way, "value": key} for key in pressed for way in ("keyDown", "keyUp")]
        self._send("POST", "actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def text(self, where: str = "body") -> str:
        """What is to be read there."""
        return str(self.script("return document.querySelector(arguments[0])?.innerText ?? ''", where))

    # -- plumbing ---------------------------------------------------------------------------------

    def begin(self, profile: Path, size: tuple[int, int], dark: bool) -> None:
        scheme = ["--force-dark-mode"] if dark else []
        flags = [*_FLAGS, *scheme, f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}"]
        capabilities = {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": flags, "binary": shutil.which("chromium")},
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": 30_000, "pageLoad": 60_000},
        }
        deadline = time.monotonic() + _STARTS_S
        while True:
            try:
                if self._http.get("/status").json()["value"]["ready"]:
                    break
            except httpx.HTTPError:
                if self._driver.poll() is not None or time.monotonic() > deadline:
                    raise BrowserError("chromedriver did not start") from None
            time.sleep(0.05)
        self._session = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})["sessionId"]

    def _send(self, method: str, path: str, content: dict[str, Any] | None = None) -> Any:
        return self._ask(method, f"/session/{self._session}/{path}", content)

    def _ask(self, method: str, path: str, content: dict[str, Any] | None) -> Any:
        answer = self._http.request(method, path, json=content)
        value = answer.json()["value"]
        if isinstance(value, dict) and "error" in value:
            raise BrowserError(f"{value['error']}: {value['message'].splitlines()[0]}")
        return value


def severe(entries: Sequence[dict[str, Any]]) -> list[str]:
    """The console's errors as texts."""
    return [json.dumps(entry["message"]) for entry in entries if entry["level"] == "SEVERE"]


def _signal_group(leader: int, number: signal.Signals) -> None:
    os.killpg(leader, number)
