"""A console on a port of this machine, and a client that does what a browser does: cookies and forms."""

import asyncio
import re
import threading
from concurrent.futures import Future
from html import unescape
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from rocket_client import Admin, ClientSettings
from rocket_console.server.console_server import ConsoleServer, ConsoleSettings

_TOKEN = re.compile(r'name="csrf" value="([^"]+)"')


class RunningConsole:
    """A console that runs in a thread of its own.

    Attributes:
        url: Its address.
        audit_log: The file of its audit log.
    """

    def __init__(self, name_server: str, directory: Path, **settings: Any) -> None:
        self.url = ""
        self.audit_log = directory / "audit.log"
        seconds = settings.get("answer_within", 10.0)
        self._settings = ConsoleSettings(audit_log=self.audit_log, **{"answer_within": seconds, **settings})
        self._name_server = name_server
        self._started: Future[str] = Future()
        self._loop: asyncio.AbstractEventLoop
        self._end: asyncio.Event
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="console")

    def __enter__(self) -> Self:
        self._thread.start()
        self.url = self._started.result(60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(60)

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        settings = ClientSettings(name_servers=self._name_server)
        try:
            async with Admin(settings) as admin:
                server = ConsoleServer(admin, self._settings)
                await server.start()
                self._started.set_result(server.url)
                await self._end.wait()
                await server.stop()
        except Exception as error:
            if self._started.done():
                raise
            self._started.set_exception(error)


class Browser(httpx.Client):
    """Shows pages and sends forms."""

    def __init__(self, console: RunningConsole, **options: Any) -> None:
        super().__init__(base_url=console.url, timeout=60, **options)
        self._token = ""

    def page(self, address: str, status: int = 200) -> str:
        """Return the HTML of a page with this status."""
        answer = self.get(address)
        assert answer.status_code == status, answer.text
        return answer.text

    def facts(self, address: str, status: int = 200) -> str:
        """Return the text of a page without its tags, with single spaces."""
        return text_of(self.page(address, status))

    def submit(self, address: str, **fields: str) -> httpx.Response:
        """Send a form, with the token of this browser's session."""
        if not self._token:
            found = _TOKEN.search(self.page("/new-group"))
            self._token = "" if found is None else found[1]
        return self.post(address, data={"csrf": self._token, **fields})


def text_of(html: str) -> str:
    """Return the text of HTML without its tags, with single spaces."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())
