"""A schema registry for tests: a server of HTTP that answers what readers of values ask."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


class Registry:
    """Schemas by id and by subject, behind a server of HTTP."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.asked: list[tuple[str, str | None]] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append((self.path, self.headers.get("Authorization")))
                reply = registry.answer(self.path)
                body = json.dumps(reply or {"error_code": 40403, "message": "not found"}).encode()
                self.send_response(200 if reply else 404)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: object) -> None:
                """Nothing on stderr."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def register(self, subject: str, schema: Any, **more: Any) -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.schemas.append({"schema": text, **more})
        self.subjects.setdefault(subject, []).append(len(self.schemas))
        return len(self.schemas)

    def answer(self, path: str) -> dict[str, Any] | None:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if parts[:2] == ["schemas", "ids"] and parts[2].isdigit() and 0 < int(parts[2]) <= len(self.schemas):
            return self.schemas[int(parts[2]) - 1]
        if parts[0] == "subjects" and parts[2] == "versions":
            numbers = self.subjects.get(parts[1], [])
            version = len(numbers) if parts[3] == "latest" else int(parts[3])
            if 0 < version <= len(numbers):
                number = numbers[version - 1]
                return {"subject": parts[1], "version": version, "id": number, **self.schemas[number - 1]}
        return None


@contextmanager
def serving() -> Iterator[Registry]:
    """A registry on a free loopback port, for as long as the block runs."""
    made = Registry()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()
        thread.join()
