"""Debian's chromium without a window, driven over its DevTools protocol: pages, their errors, their pictures."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from helpers import SECONDS, wait_until
from tornado.websocket import websocket_connect

__all__ = ["Tab", "browser"]

_FOCUSED = """
(() => {
  const each = document.activeElement, box = each.getBoundingClientRect();
  const style = getComputedStyle(each.closest('.plot') ?? each);  // what Bokeh draws is in a tree of its own
  return {
    text: each.textContent.trim().slice(0, 40), name: each.localName,
    seen: box.width > 0 && box.left >= 0 && box.right <= innerWidth && box.top < innerHeight && box.bottom > 0,
    ringed: style.outlineStyle != 'none' && style.outlineWidth != '0px' || style.boxShadow != 'none',
  };
})()
"""


@contextlib.contextmanager
def browser() -> Iterator[Tab]:
    """Yield a tab of a browser of its own; skip the test where there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("chromium is not installed")
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                   "--disable-dev-shm-usage", "--remote-debugging-port=0", f"--user-data-dir={profile}"]  # fmt: skip
        started = subprocess.Popen(
            [program, *options, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            port = Path(profile, "DevToolsActivePort")
            wait_until(lambda: port.exists() and len(port.read_text().split()) == 2)
            number, path = port.read_text().split()
            with asyncio.Runner() as runner:
                yield runner.run(Tab.of(runner, f"ws://127.0.0.1:{number}{path}"))
        finally:
            _end(started)


def _end(started: subprocess.Popen[bytes]) -> None:
    """End the browser that was started here, with the processes below it."""
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(started.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
    started.kill()
    started.wait(SECONDS)


class Tab:
    """A page, how it is shown, and what its console and its network said."""

    def __init__(self, runner: asyncio.Runner, socket: Any) -> None:
        self._runner, self._socket, self._numbers = runner, socket, itertools.count(1)
        self._session: str | None = None
        self.said: list[str] = []  # errors, warnings and exceptions
        self.requested: list[str] = []  # addresses

    @classmethod
    async def of(cls, runner: asyncio.Runner, address: str) -> Tab:
        tab = cls(runner, await websocket_connect(address, max_message_size=2**28))
        target = (await tab._send("Target.createTarget", url="about:blank"))["targetId"]
        tab._session = (await tab._send("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await tab._send(f"{domain}.enable")
        return tab

    async def _send(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        session = {} if self._session is None else {"sessionId": self._session}
        await self._socket.write_message(json.dumps({"id": number, "method": method, "params": params, **session}))
        while True:
            text = await asyncio.wait_for(self._socket.read_message(), SECONDS)
            assert text is not None, "the browser has closed the connection"
            message = json.loads(text)
            self._note(message)
            if message.get("id") == number:
                assert "error" not in message, message["error"]
                return message["result"]

    def _note(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.said.append(json.dumps(params["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.said.append(json.dumps(params["args"])[:500])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.said.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        return self._runner.run(self._send(method, **params))

    def value(self, expression: str) -> Any:
        """Return the JSON value of an expression in the page, awaited if it is a promise."""
        found = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def show(self, path: Path, *, width: int, dark: bool = False, height: int = 900) -> None:
        """Open a report at a width and wait until its plots are drawn."""
        self.said.clear()
        self.requested.clear()
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.send("Emulation.setEmulatedMedia", media="screen", features=scheme)
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600,
        )  # fmt: skip
        self.send("Page.navigate", url=path.resolve().as_uri())
        wait_until(lambda: self.value("document.documentElement?.dataset.drawn ?? null") is not None)
        # plots are drawn in the frames after their data are there
        self.value("new Promise(done => setTimeout(() => requestAnimationFrame(done), 300))")

    def press(self, key: str) -> None:
        """Press Tab or Enter."""
        code, text = {"Tab": (9, ""), "Enter": (13, "\r")}[key]
        given = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **given)
        self.send("Input.dispatchKeyEvent", type="keyUp", **given)

    def focused(self) -> dict[str, Any]:
        """Return what has the focus: its text and name, whether it is on the screen, whether a ring shows it."""
        found: dict[str, Any] = self.value(_FOCUSED)
        return found

    def print_as(self) -> None:
        """Show the page as it is printed."""
        self.send("Emulation.setEmulatedMedia", media="print")
        self.value("new Promise(done => setTimeout(() => requestAnimationFrame(done), 300))")

    def picture(self, out: Path, *, most: int | None = None) -> None:
        """Save a picture of the whole page, or of its first `most` pixels of height."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {
            "x": 0, "y": 0, "width": size["width"], "height": min(size["height"], most or 16000), "scale": 1,
        }  # fmt: skip
        data = self.send("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)["data"]
        out.write_bytes(base64.b64decode(data))
