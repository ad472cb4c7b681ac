"""A server of files on this machine whose transfers can break."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Server(http.server.ThreadingHTTPServer):
    """Serves `files` as the version `etag`. With `break_after`, it ends a transfer after so many bytes, and serves
    nothing more."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.etag: str | None = '"one"'
        self.break_after: int | None = None
        self.requests: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/base/"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_HEAD(self) -> None:
        self.answer(None)

    def do_GET(self) -> None:
        wanted = self.headers["Range"]
        self.server.requests.append((self.path, wanted))
        body = self.answer(wanted)
        if self.server.break_after is not None:
            body, self.server.files = body[: self.server.break_after], {}
        self.wfile.write(body)

    def answer(self, wanted: str | None) -> bytes:
        """Sends the headers and returns the body."""
        body = self.server.files.get(self.path.removeprefix("/base/"))
        if body is None:
            self.send_error(404)
            return b""
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if self.server.etag:
            self.send_header("ETag", self.server.etag)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        return body[start:]

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
