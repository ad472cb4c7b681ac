"""The smallest Hub to which huggingface_hub's client uploads a model, and from which it downloads it: in memory."""

import base64
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0" * 40


class Hub(http.server.ThreadingHTTPServer):
    """`files` has the content of each file by the name of the repository and the path of the file."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, dict[str, bytes]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        parts = urlsplit(self.path).path.split("/")[2:]
        if parts == ["repos", "create"]:
            wanted = json.loads(body)
            name = f"{wanted['organization']}/{wanted['name']}"
            self.server.files.setdefault(name, {})
            self.send({"url": f"{self.server.url}/{name}"})
        elif "preupload" in parts:  # no file is said to need Git LFS, so that the commit carries them all
            files = [{"path": file["path"], "uploadMode": "regular"} for file in json.loads(body)["files"]]
            self.send({"files": [file | {"shouldIgnore": False, "oid": None} for file in files]})
        elif "commit" in parts:
            name = "/".join(parts[1:3])
            files = self.server.files[name]
            for item in map(json.loads, body.splitlines()):
                value = item["value"]
                if item["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif item["key"] == "deletedFile":
                    del files[value["path"]]
            self.send({"commitUrl": f"{self.server.url}/{name}/commit/{COMMIT}", "commitOid": COMMIT})
        else:  # validate-yaml
            self.send({"errors": [], "warnings": []})

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if path.startswith("/api/models/"):
            owner, name, *what = path.removeprefix("/api/models/").split("/")
            files = self.server.files[f"{owner}/{name}"]
            listed = [{"type": "file", "path": path, "size": len(files[path]), "oid": "1"} for path in files]
            info = {"id": f"{owner}/{name}", "sha": COMMIT, "private": False, "tags": [], "siblings": []}
            return self.send(listed if "tree" in what else info)
        owner, name, *place = path.split("/")[1:]  # somebody/model/resolve/main/config.json
        content = self.server.files.get(f"{owner}/{name}", {}).get("/".join(place[2:]))
        if content is None:
            return self.send({}, 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        self.send(content, headers={"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT})

    do_HEAD = do_GET

    def send(self, content: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Keeps the tests' output clean."""


@contextmanager
def serving() -> Iterator[Hub]:
    """A Hub in a thread."""
    hub = Hub()
    threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
