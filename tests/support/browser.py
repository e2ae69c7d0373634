"""A real headless browser over its debugging pipe: what a page says on its console, how wide it is, how it looks."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find_browser() -> str | None:
    """The first browser on the path."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One tab. Protocol messages are JSON ended by a zero byte, over file descriptors 3 (to it) and 4 (from it)."""

    def __init__(self, profile: Path) -> None:
        command = find_browser()
        assert command is not None
        to_read, self._to = os.pipe()
        self._from, from_write = os.pipe()

        def arrange() -> None:
            os.dup2(to_read, 3)
            os.dup2(from_write, 4)

        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]
        flags += ["--remote-debugging-pipe", f"--user-data-dir={profile}", "--disable-background-networking"]
        with open(profile / "stderr", "wb") as stderr:
            self._process = subprocess.Popen(
                [command, *flags, "about:blank"], stdout=stderr, stderr=stderr, pass_fds=(3, 4), preexec_fn=arrange
            )
        os.close(to_read)
        os.close(from_write)
        self._buffer, self._next, self.events = b"", 0, list[dict[str, Any]]()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    _session: str | None = None

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its answer; events that come meanwhile are kept."""
        self._next += 1
        told = {"id": self._next, "method": method, "params": params}
        if self._session:
            told["sessionId"] = self._session
        os.write(self._to, json.dumps(told).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == self._next:
                assert "error" not in message, message
                return message["result"]
            self.events.append(message)

    def open(self, page: Path, width: int, height: int = 900, dark: bool = False) -> None:
        """Load a file at a width in CSS pixels and wait until it is loaded."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=page.resolve().as_uri())
        end = time.monotonic() + 20
        while self.run("document.readyState") != "complete" or self.run("location.href") == "about:blank":
            assert time.monotonic() < end, "the page did not load"

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def move(self, x: float, y: float) -> None:
        """The pointer to a place of the window."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def complaints(self) -> list[str]:
        """Console errors and warnings, exceptions, and whatever the page tried to load beside itself."""
        found = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(str(params["exceptionDetails"]))
            elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
            elif event.get("method") == "Runtime.consoleAPICalled":
                found.append(f"console.{params['type']}")
            elif event.get("method") == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if not url.startswith(("data:", "about:")) and url != params["documentURL"]:
                    found.append(f"loads {url}")
        return found

    def screenshot(self, file: Path, full: bool = True) -> None:
        """The page as PNG."""
        data = self.call("Page.captureScreenshot", captureBeyondViewport=full)["data"]
        if full:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 6000), "scale": 1}
            data = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        file.write_bytes(base64.b64decode(data))

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.wait(timeout=20)
        os.close(self._to)
        os.close(self._from)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            data = os.read(self._from, 1 << 16)
            assert data, "the browser ended"
            self._buffer += data
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)
