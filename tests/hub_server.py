"""
A Hub on this machine: the endpoints that huggingface_hub's client uses to upload and to download, in memory.

As the client of huggingface_hub 2.4 asks for them, with `HF_HUB_DISABLE_XET=1`: create, branch, preupload, LFS batch,
commit, model info, tree, refs, and `resolve` with its redirect to the storage.
"""

import base64
import hashlib
import http.server
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

LARGE = re.compile(r"\.(safetensors|bin|png)$")  # what .gitattributes of a new repository gives to LFS


@dataclass
class File:
    content: bytes
    large: bool

    @property
    def etag(self) -> str:
        """The Hub's ETag: the SHA-256 of a large file, or git's object name for the content of another file."""
        if self.large:
            return hashlib.sha256(self.content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(self.content) + self.content).hexdigest()


@dataclass
class Repository:
    private: bool
    commits: dict[str, dict[str, File]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, branch: str, files: dict[str, File]) -> str:
        oid = hashlib.sha1(f"{branch} {len(self.commits)}".encode()).hexdigest()
        self.commits[oid], self.branches[branch] = files, oid
        return oid

    def find(self, revision: str) -> str | None:
        return self.branches.get(revision, revision if revision in self.commits else None)


class Hub(http.server.ThreadingHTTPServer):
    """
    Attributes:
        tokens: what each token may do: `"write"` or `"read"`.
        repositories: by `owner/name`.
        stored: large files that have arrived, by SHA-256.
        requests: (method, path) in their order.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.tokens = {"hf_writer": "write", "hf_reader": "read"}
        self.repositories: dict[str, Repository] = {}
        self.stored: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def storage(self) -> str:
        """The address of large files: as with the Hub, on another host, which must not see the token."""
        return f"http://localhost:{self.server_port}/storage"

    def files(self, name: str, revision: str = "main") -> dict[str, bytes]:
        """The content of each file of a repository."""
        repository = self.repositories[name]
        return {path: file.content for path, file in repository.commits[repository.branches[revision]].items()}


class _Refusal(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, message: str, code: str | None = None, **headers: str) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers | ({"X-Error-Code": code} if code else {})


class Handler(http.server.BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    ROUTES = (
        ("POST", r"/api/repos/create", "create"),
        ("POST", r"/api/validate-yaml", "validate_yaml"),
        ("POST", r"/api/models/([^/]+/[^/]+)/branch/([^/]+)", "branch"),
        ("POST", r"/api/models/([^/]+/[^/]+)/preupload/([^/]+)", "preupload"),
        ("POST", r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", "batch"),
        ("PUT", r"/storage/(\w{64})", "put"),
        ("POST", r"/api/models/([^/]+/[^/]+)/verify", "verify"),
        ("POST", r"/api/models/([^/]+/[^/]+)/commit/([^/]+)", "commit"),
        ("GET", r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", "info"),
        ("GET", r"/api/models/([^/]+/[^/]+)/tree/([^/]+)(?:/(.*))?", "tree"),
        ("GET", r"/api/models/([^/]+/[^/]+)/refs", "refs"),
        ("GET", r"/storage/(\w{64})", "get"),
        ("GET", r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", "resolve"),
    )

    def answer(self) -> None:
        path = urlsplit(self.path).path
        self.server.requests.append((self.command, unquote(path)))
        self.body = self.rfile.read(int(self.headers["Content-Length"] or 0)) if self.is_short() else self.chunks()
        try:
            if path.startswith("/storage/") and self.headers["Authorization"]:
                raise _Refusal(400, "the token was sent to the storage")
            for method, pattern, name in self.ROUTES:
                found = re.fullmatch(pattern, path)
                if found and method == self.command.replace("HEAD", "GET"):
                    return getattr(self, name)(*(part and unquote(part) for part in found.groups()))
            raise _Refusal(404, f"no such endpoint: {self.command} {path}")
        except _Refusal as refusal:
            self.send({"error": str(refusal)}, refusal.status, {"X-Error-Message": str(refusal), **refusal.headers})

    do_GET = do_HEAD = do_POST = do_PUT = answer

    def is_short(self) -> bool:
        return self.headers.get("Transfer-Encoding") != "chunked"

    def chunks(self) -> bytes:
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

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

    # -- who may do what ---------------------------------------------------------------------------------------------

    def right(self) -> str | None:
        given = (self.headers["Authorization"] or "").removeprefix("Bearer ")
        if given and given not in self.server.tokens:
            raise _Refusal(401, "Invalid credentials in Authorization header")
        return self.server.tokens.get(given)

    def require_write(self) -> None:
        if (right := self.right()) is None:
            raise _Refusal(401, "Invalid username or password.")
        if right != "write":
            raise _Refusal(403, "You don't have the rights to write to this repository")

    def repository(self, name: str) -> Repository:
        found = self.server.repositories.get(name)
        if found is None or (found.private and self.right() is None):
            raise _Refusal(404, "Repository not found", "RepoNotFound")
        return found

    def at(self, name: str, revision: str) -> tuple[str, dict[str, File]]:
        """The commit of a revision, and its files."""
        repository = self.repository(name)
        if (oid := repository.find(revision)) is None:
            raise _Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return oid, repository.commits[oid]

    # -- upload ------------------------------------------------------------------------------------------------------

    def create(self) -> None:
        self.require_write()
        wanted = json.loads(self.body)
        name = f"{wanted['organization']}/{wanted['name']}"
        answer = {"url": f"{self.server.url}/{name}", "name": name}
        if name in self.server.repositories:
            return self.send(answer | {"error": "You already created this model repo"}, 409)
        self.server.repositories[name] = made = Repository(wanted.get("visibility") == "private")
        made.commit("main", {".gitattributes": File(b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n", False)})
        self.send(answer)

    def validate_yaml(self) -> None:
        found = re.match(r"---\n(.*?)\n---\n", json.loads(self.body)["content"], re.DOTALL)
        try:
            data = yaml.safe_load(found[1]) if found else {}
        except yaml.YAMLError as error:
            return self.send({"errors": [{"message": str(error)}], "warnings": []}, 400)
        unknown = data.get("license_name") is None and data.get("license") == "other"
        errors = [{"message": '"license_name" is required'}] if unknown else []
        self.send({"errors": errors, "warnings": []}, 400 if errors else 200)

    def branch(self, name: str, branch: str) -> None:
        self.require_write()
        repository = self.repository(name)
        if branch in repository.branches:
            raise _Refusal(409, f"Reference already exists: refs/heads/{branch}")
        start, _ = self.at(name, json.loads(self.body or b"{}").get("startingPoint", "main"))
        repository.branches[branch] = start
        self.send({})

    def preupload(self, name: str, revision: str) -> None:
        self.require_write()
        _, there = self.at(name, revision)
        asked = [file["path"] for file in json.loads(self.body)["files"]]
        files = [{"path": path, "uploadMode": "lfs" if LARGE.search(path) else "regular"} for path in asked]
        for file in files:
            file["shouldIgnore"] = False
            file["oid"] = there[file["path"]].etag if file["path"] in there else None
        self.send({"files": files})

    def batch(self, name: str) -> None:
        self.require_write()
        wanted = json.loads(self.body)
        assert wanted["operation"] == "upload"
        objects = []
        for one in wanted["objects"]:
            answer = {"oid": one["oid"], "size": one["size"]}
            if one["oid"] not in self.server.stored:
                href = f"{self.server.storage}/{one['oid']}"
                verify = f"{self.server.url}/api/models/{name}/verify"
                answer["actions"] = {"upload": {"href": href}, "verify": {"href": verify}}
            objects.append(answer)
        self.send({"transfer": "basic", "objects": objects})

    def put(self, oid: str) -> None:
        if hashlib.sha256(self.body).hexdigest() != oid:
            raise _Refusal(400, "the content has another SHA-256")
        self.server.stored[oid] = self.body
        self.send({})

    def verify(self, name: str) -> None:
        self.require_write()
        asked = json.loads(self.body)
        if len(self.server.stored.get(asked["oid"], b"")) != asked["size"]:
            raise _Refusal(404, "the file has not arrived")
        self.send({})

    def commit(self, name: str, revision: str) -> None:
        self.require_write()
        repository = self.repository(name)
        if revision not in repository.branches:
            raise _Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        files = dict(self.at(name, revision)[1])
        for line in self.body.splitlines():
            item = json.loads(line)
            value = item["value"]
            if item["key"] == "file":
                files[value["path"]] = File(base64.b64decode(value["content"]), large=False)
            elif item["key"] == "lfsFile":
                files[value["path"]] = File(self.server.stored[value["oid"]], large=True)
            elif item["key"] == "deletedFile":
                del files[value["path"]]
        oid = repository.commit(revision, files)
        self.send({"commitUrl": f"{self.server.url}/{name}/commit/{oid}", "commitOid": oid})

    # -- download ----------------------------------------------------------------------------------------------------

    def info(self, name: str, revision: str | None) -> None:
        oid, files = self.at(name, revision or "main")
        private = self.server.repositories[name].private
        siblings = [{"rfilename": path} for path in files]
        self.send({"id": name, "modelId": name, "sha": oid, "private": private, "tags": [], "siblings": siblings})

    def tree(self, name: str, revision: str, below: str | None) -> None:
        _, files = self.at(name, revision)
        found = []
        for path, file in files.items():
            if below and not path.startswith(f"{below}/"):
                continue
            entry = {"type": "file", "path": path, "size": len(file.content), "oid": file.etag}
            if file.large:
                entry["lfs"] = {"oid": file.etag, "size": len(file.content), "pointerSize": 130}
            found.append(entry)
        if below and not found:
            raise _Refusal(404, f"{below} does not exist", "EntryNotFound")
        self.send(found)

    def refs(self, name: str) -> None:
        branches = self.repository(name).branches.items()
        refs = [{"name": branch, "ref": f"refs/heads/{branch}", "targetCommit": oid} for branch, oid in branches]
        self.send({"branches": refs, "converts": [], "tags": []})

    def resolve(self, name: str, revision: str, path: str) -> None:
        oid, files = self.at(name, revision)
        if path not in files:
            raise _Refusal(404, "Entry not found", "EntryNotFound", **{"X-Repo-Commit": oid})
        file, headers = files[path], {"X-Repo-Commit": oid}
        if not file.large:
            return self.send(file.content, headers=headers | {"ETag": f'"{file.etag}"'})
        headers |= {"X-Linked-Etag": f'"{file.etag}"', "X-Linked-Size": str(len(file.content))}
        self.send(b"", 302, headers | {"Location": f"{self.server.storage}/{file.etag}"})

    def get(self, oid: str) -> None:
        self.send(self.server.stored[oid], headers={"ETag": f'"{oid}"'})


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
