"""An HTTP server in a thread, for the API of a platform: keeps what it is sent, and fails where a test says so."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True)
class Answer:
    body: Any
    code: int = 200
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def bytes(self) -> bytes:
        return self.body.encode() if isinstance(self.body, str) else json.dumps(self.body).encode()


BROKEN = Answer("", 0)  # no answer: the line breaks
PAGE = Answer("<html><title>Log in</title></html>", headers={"Content-Type": "text/html"})


_Planned = tuple[str, re.Pattern[str], deque[Answer]]


class StandIn:
    """Answers with `route`, unless `fail` has an answer for the request first."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self._failures: list[_Planned] = []
        self._losses: list[_Planned] = []
        self._lock = threading.Lock()  # each request is answered in a thread of its own
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def fail(self, method: str, path: str, *answers: Answer) -> None:
        """The next requests of that method to a path that matches get these answers, one each."""
        self._failures.append((method, re.compile(path), deque(answers)))

    def relent(self) -> None:
        """Forgets the failures that have not come up."""
        self._failures.clear()

    def lose(self, method: str, path: str, answer: Answer) -> None:
        """The next such request is carried out, and then answered with this."""
        self._losses.append((method, re.compile(path), deque([answer])))

    def bodies(self, method: str, path: str) -> list[Any]:
        return [asked.body for asked in self.asked if asked.method == method and re.search(path, asked.path)]

    def route(self, asked: Asked) -> Answer:
        raise NotImplementedError

    def _answer(self, asked: Asked) -> Answer:
        with self._lock:
            self.asked.append(asked)
            if failure := _next(self._failures, asked):
                return failure
        try:
            answer = self.route(asked)
        except Exception as error:  # what does not fit the client's own messages: it is told, and a test sees it
            return Answer({"message": f"stand-in: {error!r}"}, 400)
        with self._lock:
            return _next(self._losses, asked) or answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        answer: Callable[[Asked], Answer] = self._answer

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._reply()

            def do_POST(self) -> None:
                self._reply()

            def _reply(self) -> None:
                sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                url = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(url.query).items()}
                is_json = self.headers.get("Content-Type") == "application/json"
                body = json.loads(sent) if sent and is_json else sent
                answered = answer(
                    Asked(self.command, url.path, query, {k.title(): v for k, v in self.headers.items()}, body)
                )
                if answered is BROKEN:
                    return
                self.send_response(answered.code)
                for name, value in {"Content-Type": "application/json", **answered.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answered.bytes)))
                self.end_headers()
                self.wfile.write(answered.bytes)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def _next(planned: list[_Planned], asked: Asked) -> Answer | None:
    for method, path, answers in planned:
        if method == asked.method and path.search(asked.path) and answers:
            return answers.popleft()
    return None


@contextlib.contextmanager
def serving(kind: Callable[..., StandIn]) -> Iterator[Callable[..., Any]]:
    """Starts a server of that kind for each call with the frames that it is to show, and closes them all at the end."""
    with contextlib.ExitStack() as servers:

        def started(*frames: Any, **options: Any) -> StandIn:
            return servers.enter_context(contextlib.closing(kind(frames, **options)))

        yield started
