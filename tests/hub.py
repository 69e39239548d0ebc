"""A stand-in for the Hub's HTTP API: what uploads and downloads of models use of it.

It is strict where the real one is: writes need the token, private repositories too; a large file's
bytes must match their SHA-256, and a commit that names bytes the store has not got, or a parent
that is not the branch's head, is refused. It speaks LFS, not Xet.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from threading import Thread
from urllib.parse import unquote, urlsplit

import yaml

TOKEN, OWNER = "hf_tests", "someone"
LFS_SUFFIXES = (".safetensors", ".onnx", ".png")


@dataclass
class Repository:
    """Branches are lists of commits, a commit is all files: name -> (bytes, is LFS)."""

    private: bool
    commits: dict[str, dict[str, tuple[bytes, bool]]] = field(default_factory=dict)
    branches: dict[str, list[str]] = field(default_factory=dict)

    def add(self, branch: str, files: dict[str, tuple[bytes, bool]]) -> str:
        """Commit all files to a branch."""
        log = self.branches.setdefault(branch, [])
        oid = hashlib.sha1(f"{branch} {len(log)} {sorted(files)}".encode()).hexdigest()
        self.commits[oid] = files
        log.append(oid)
        return oid

    def find(self, revision: str) -> str | None:
        """Commit of a branch or of a commit's own name."""
        if revision in self.branches:
            return self.branches[revision][-1]
        return revision if revision in self.commits else None


@dataclass
class Hub:
    """What the stand-in holds.

    Attributes:
        fails: Route on which it fails, with a status; 0 cuts the connection, and -1 does so once
            the work is done. With 200 it answers with a web page, as proxies do.
        puts_off: Route on which it asks to wait (HTTP 429), how often, and headers that say for
            how long.
        meanwhile: Called once, before the next commit.
        requests: Route of every request, in order.
    """

    url: str = ""
    repositories: dict[str, Repository] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    fails: tuple[str, int] | None = None
    puts_off: tuple[str, int, dict[str, str]] = ("", 0, {})
    meanwhile: Callable[[], object] | None = None

    def files(self, name: str, revision: str = "main") -> dict[str, bytes]:
        """Bytes of a repository's files; without what the Hub itself puts there."""
        repository = self.repositories[name]
        commit = repository.commits[str(repository.find(revision))]
        return {name: content for name, (content, _) in commit.items() if name != ".gitattributes"}


class Refusal(Exception):
    """A status other than 200, with the Hub's code for it, and perhaps headers."""


class Handler(BaseHTTPRequestHandler):
    """Routes requests; ``hub`` is set on a subclass."""

    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        """Stay silent."""

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def reply_json(self, content: object, status: int = 200) -> None:
        self.reply(status, json.dumps(content).encode(), Content_Type="application/json")

    def route(self) -> None:
        """Find the first route that fits and run it."""
        path = urlsplit(self.path).path
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fitting = (
            (action, found)
            for pattern, methods, action in ROUTES
            if self.command in methods and (found := re.fullmatch(pattern, path))
        )
        action, found = next(fitting, (None, None))
        if action is None:
            self.reply(404)
            return
        self.hub.requests.append(action.__name__)
        route, times, headers = self.hub.puts_off
        if times and route == action.__name__:
            self.hub.puts_off = route, times - 1, headers
            self.reply(429, b"{}", **headers)
            return
        if self.hub.fails and self.hub.fails[0] == action.__name__:
            status = self.hub.fails[1]
            if status > 0:
                self.reply(status, b"<html>" if status == 200 else b"{}")
                return
            self.close_connection = True
            if status == 0:
                return
            self.wfile = BytesIO()  # type: ignore[assignment]
        try:
            action(self, *map(unquote, found.groups()))
        except Refusal as refusal:
            status, code, *more = refusal.args
            headers = {"X_Error_Code": code} | (more[0] if more else {})
            self.reply(status, json.dumps({"error": code}).encode(), **headers)

    do_GET = do_HEAD = do_POST = do_PUT = route

    def check_token(self) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise Refusal(401, "Unauthorized")

    def repository(self, name: str, *, write: bool = False) -> Repository:
        repository = self.hub.repositories.get(name)
        if write or (repository and repository.private):
            self.check_token()
        if repository is None:
            raise Refusal(404, "RepoNotFound")
        return repository

    def commit(self, name: str, revision: str) -> tuple[str, dict[str, tuple[bytes, bool]]]:
        repository = self.repository(name)
        oid = repository.find(revision)
        if oid is None:
            raise Refusal(404, "RevisionNotFound")
        return oid, repository.commits[oid]


def create(request: Handler) -> None:
    request.check_token()
    wanted = json.loads(request.body)
    name = f"{wanted.get('organization') or OWNER}/{wanted['name']}"
    there = name in request.hub.repositories
    if not there:
        # Clients before huggingface_hub 2 say `private`.
        hidden = wanted.get("visibility") == "private" or wanted.get("private", False)
        repository = Repository(hidden)
        repository.add("main", {".gitattributes": (b"", False)})
        request.hub.repositories[name] = repository
    request.reply_json({"url": f"{request.hub.url}/{name}"}, 409 if there else 200)


def validate_card(request: Handler) -> None:
    content = json.loads(request.body)["content"]
    front = re.match(r"---\n(.*?)\n---", content, re.DOTALL)
    errors = [] if front and isinstance(yaml.safe_load(front[1]), dict) else [{"message": "none"}]
    request.reply_json({"errors": errors, "warnings": []}, 400 if errors else 200)


def info(request: Handler, name: str, revision: str = "main") -> None:
    oid, files = request.commit(name, revision)
    siblings = [{"rfilename": file} for file in files]
    private = request.repository(name).private
    request.reply_json({"id": name, "sha": oid, "private": private, "siblings": siblings})


def tree(request: Handler, name: str, revision: str) -> None:
    _, files = request.commit(name, revision)
    rows = [
        {"type": "file", "path": file, "size": len(content), "oid": git_hash(content)}
        for file, (content, _) in files.items()
    ]
    request.reply_json(rows)


def branch(request: Handler, name: str, new: str) -> None:
    repository = request.repository(name, write=True)
    there = new in repository.branches
    if not there:
        repository.branches[new] = list(repository.branches["main"])
    request.reply_json({}, 409 if there else 200)


def preupload(request: Handler, name: str, revision: str) -> None:
    request.repository(name, write=True)
    _, there = request.commit(name, revision)
    rows = []
    for file in json.loads(request.body)["files"]:
        path = file["path"]
        row = {"path": path, "shouldIgnore": False, "uploadMode": "regular"}
        if path.endswith(LFS_SUFFIXES):
            row["uploadMode"] = "lfs"
        if path in there:
            content, is_lfs = there[path]
            row["oid"] = hashlib.sha256(content).hexdigest() if is_lfs else git_hash(content)
        rows.append(row)
    request.reply_json({"files": rows})


def lfs_batch(request: Handler, name: str) -> None:
    request.repository(name, write=True)
    rows = []
    for wanted in json.loads(request.body)["objects"]:
        row = {"oid": wanted["oid"], "size": wanted["size"]}
        if wanted["oid"] not in request.hub.objects:
            href = f"{request.hub.url}/lfs-store/{wanted['oid']}"
            row["actions"] = {"upload": {"href": href}}
        rows.append(row)
    request.reply_json({"transfer": "basic", "objects": rows})


def lfs_put(request: Handler, oid: str) -> None:
    if hashlib.sha256(request.body).hexdigest() != oid:
        raise Refusal(422, "HashMismatch")
    request.hub.objects[oid] = request.body
    request.reply(200)


def lfs_get(request: Handler, oid: str) -> None:
    request.reply(200, request.hub.objects[oid])


def commit(request: Handler, name: str, revision: str) -> None:
    repository, hub = request.repository(name, write=True), request.hub
    meanwhile, hub.meanwhile = hub.meanwhile, None
    if meanwhile:
        meanwhile()
    head, there = request.commit(name, revision)
    files = dict(there)
    for line in map(json.loads, request.body.splitlines()):
        value = line["value"]
        if line["key"] == "header":
            message = value["summary"]
            if value.get("parentCommit", head) != head:
                raise Refusal(412, "PreconditionFailed")
        elif line["key"] == "deletedFile":
            del files[value["path"]]
        elif line["key"] == "file":
            files[value["path"]] = (base64.b64decode(value["content"]), False)
        elif value["oid"] in hub.objects:
            files[value["path"]] = (hub.objects[value["oid"]], True)
        else:
            raise Refusal(400, "MissingObject")
    hub.messages.append(message)
    oid = repository.add(revision, files)
    request.reply_json({"commitUrl": f"{hub.url}/{name}/commit/{oid}", "commitOid": oid})


def resolve(request: Handler, name: str, revision: str, path: str) -> None:
    oid, files = request.commit(name, revision)
    if path not in files:
        raise Refusal(404, "EntryNotFound", {"X_Repo_Commit": oid})
    content, is_lfs = files[path]
    headers = {"X_Repo_Commit": oid, "ETag": f'"{git_hash(content)}"'}
    if not is_lfs:
        request.reply(200, content, **headers)
        return
    digest = hashlib.sha256(content).hexdigest()
    headers |= {"X_Linked_Size": str(len(content)), "X_Linked_ETag": f'"{digest}"'}
    elsewhere = request.hub.url.replace("127.0.0.1", "localhost")  # large files are on another host
    request.reply(302, Location=f"{elsewhere}/lfs-store/{digest}", **headers)


def git_hash(content: bytes) -> str:
    """Git's name of a file's bytes."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


NAME = r"([^/]+/[^/]+)"
ROUTES: list[tuple[str, tuple[str, ...], Callable[..., None]]] = [
    (r"/api/repos/create", ("POST",), create),
    (r"/api/validate-yaml", ("POST",), validate_card),
    (rf"/api/models/{NAME}", ("GET",), info),
    (rf"/api/models/{NAME}/revision/([^/]+)", ("GET",), info),
    (rf"/api/models/{NAME}/tree/([^/]+)", ("GET",), tree),
    (rf"/api/models/{NAME}/branch/([^/]+)", ("POST",), branch),
    (rf"/api/models/{NAME}/preupload/([^/]+)", ("POST",), preupload),
    (rf"/api/models/{NAME}/commit/([^/]+)", ("POST",), commit),
    (rf"/{NAME}\.git/info/lfs/objects/batch", ("POST",), lfs_batch),
    (r"/lfs-store/([0-9a-f]{64})", ("PUT",), lfs_put),
    (r"/lfs-store/([0-9a-f]{64})", ("GET", "HEAD"), lfs_get),
    (rf"/{NAME}/resolve/([^/]+)/(.+)", ("GET", "HEAD"), resolve),
]


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Serve an empty Hub on a free port of this machine."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("HubHandler", (Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
