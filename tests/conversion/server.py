"""A server of files on this machine, with every way in which a transfer can go wrong."""

import http.server
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Server(http.server.ThreadingHTTPServer):
    """Serves `files`; each `break_after` entry cuts one transfer after that many bytes of its body."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.break_after: list[int] = []
        self.etag: str | None = '"one"'
        self.ranges = True
        self.status: int | None = None
        self.honest = True  # whether If-Range is heeded: not by each cache on the way
        self.length = True  # whether the length is told
        self.pieces: tuple[int, float] | None = None  # bytes at once and the seconds after them
        self.after_request = lambda: None
        self.requests: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/base/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection ends with its client, which a test may kill."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers["Range"]
        self.server.requests.append((self.path, wanted))
        body = self.server.files.get(self.path.removeprefix("/base/"))
        if self.server.status or body is None:
            self.send_error(self.server.status or 404)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        if not self.server.ranges or (self.server.honest and self.headers["If-Range"] != self.server.etag):
            start = 0
        if start >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if self.server.etag:
            self.send_header("ETag", self.server.etag)
        if self.server.length:
            self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        end = start + self.server.break_after.pop(0) if self.server.break_after else len(body)
        self.send_body(body[start:end])
        self.server.after_request()

    def send_body(self, body: bytes) -> None:
        size, seconds = self.server.pieces or (max(len(body), 1), 0)
        for start in range(0, len(body), size):
            self.wfile.write(body[start : start + size])
            time.sleep(seconds)

    def log_message(self, *arguments: Any) -> None:
        """Keeps the tests' output clean."""


@contextmanager
def serving() -> Iterator[Server]:
    """A server in a thread."""
    server = Server()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
