"""A report that follows a run: a page of this machine, which loads itself again while the run trains."""

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from distls.reporting.markup import tag
from distls.reporting.plots import check_bokeh
from distls.reporting.run_page import render_report
from distls.reporting.run_report import read_run, report
from distls.storage.errors import DistlsError
from distls.storage.filesystem.paths import Place

_SECONDS = 5  # between two loads of the page
_LOOPBACK = "127.0.0.1"


class LiveReport:
    """A server of one page, which only this machine can reach."""

    def __init__(self, run: Place, port: int = 0, *, own_data: bool = False) -> None:
        """Listen; raises FormatError for what is no run, BadInputError without Bokeh, OSError for a port in use."""
        check_bokeh()
        read_run(run)
        self._run, self._own_data, self._ended = run, own_data, ""
        self._server = HTTPServer((_LOOPBACK, port), _handler(self.page))
        self.address = f"http://{_LOOPBACK}:{self._server.server_port}/"

    def serve(self) -> None:
        """Answer until interrupted."""
        self._server.serve_forever(poll_interval=0.2)

    def stop(self) -> None:
        """End `serve`, from another thread."""
        self._server.shutdown()

    def close(self) -> None:
        """Stop listening."""
        self._server.server_close()

    def page(self) -> str:
        """Return the report as it is now; after the end of the run always the same one, with its evaluation."""
        if self._ended:
            return self._ended
        try:
            running = read_run(self._run).status["status"] == "RUNNING"
            made = report(self._run, own_data=self._own_data and not running)
            page = render_report(made, refresh=_SECONDS if running else None)
        except (DistlsError, OSError) as error:
            return str(tag("p", error))
        self._ended = "" if running else page
        return page


def _handler(page: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    """Return a handler of requests for the page, and for nothing else."""

    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # seconds: a connection on which nothing comes would hold up all others

        def do_GET(self) -> None:
            # a page of elsewhere whose name leads here (DNS rebinding) names itself in Host
            host = self.headers.get("Host", "").rpartition(":")[0]
            if host not in (_LOOPBACK, "localhost"):
                self.send_error(403)
            elif self.path != "/":
                self.send_error(404)
            else:
                self._send(page().encode())

        def _send(self, body: bytes) -> None:
            self.send_response(200)
            for name, value in _HEADERS:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing: stderr is for messages of the command."""

    return Handler


_HEADERS = (
    ("Content-Type", "text/html; charset=utf-8"),
    ("Cache-Control", "no-store"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
)
