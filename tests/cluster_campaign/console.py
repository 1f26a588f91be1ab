"""The console, whose pages are looked at while masters are killed.

Every page must answer: as usual, or with an error that names the server that does not.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx

from tests.unit.rocket_console.browser import Browser, RunningConsole, text_of

PAGES: Final = (
    "/",
    "/brokers",
    "/brokers/broker-a",
    "/topics",
    "/topics/cluster-plain",
    "/topics/cluster-plain/clients",
    "/groups",
    "/groups/cluster-plain-readers",
    "/groups/cluster-plain-readers/members",
    "/dead-letters",
    "/half-messages",
)
PAUSE: Final = 0.5
"""Seconds between two pages."""
SECONDS: Final = 5.0
"""Seconds after which the console gives a page up and says which server is slow."""
_NAMED: Final = re.compile(r"127\.0\.0\.1:\d+|broker-[ab]")


class Console:
    """A console before the cluster, and one who looks at its pages in turn.

    Attributes:
        pages: How many pages were looked at.
        errors: How many of them showed an error.
        longest: Seconds that the slowest page took.
        problems: Pages that did not answer, failed in the console itself, or showed an error that names no server.
    """

    def __init__(self, directory: Path, name_server: str) -> None:
        self._directory = directory
        self._name_server = name_server
        self.pages = 0
        self.errors = 0
        self.longest = 0.0
        self.problems: list[str] = []
        self._is_over = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Look at pages while the context lasts."""
        looking = asyncio.create_task(asyncio.to_thread(self._look))
        try:
            yield
        finally:
            self._is_over = True
            await looking

    def _look(self) -> None:
        with (
            RunningConsole(self._name_server, self._directory, answer_within=SECONDS) as console,
            Browser(console) as browser,
        ):
            while not self._is_over:
                for page in PAGES:
                    self._look_at(browser, page)
                    time.sleep(PAUSE)

    def _look_at(self, browser: Browser, page: str) -> None:
        begun = time.monotonic()
        try:
            answer = browser.get(page)
        except httpx.HTTPError as error:
            self.problems.append(f"{page} did not answer: {error!r}")
            return
        self.pages += 1
        self.longest = max(self.longest, time.monotonic() - begun)
        if answer.status_code == 200:
            return
        self.errors += 1
        text = text_of(answer.text)
        if answer.status_code not in (404, 502, 504) or not _NAMED.search(text):
            self.problems.append(f"{page} answered {answer.status_code}: {text[-300:]}")
