"""The guard by itself, before servers that check less than ours."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from streamkit.management.request_guard import RequestGuard


@pytest.mark.parametrize(
    ("hosts", "status"),
    [((b"localhost",), 200), ((), 400), ((b"localhost", b"evil.example"), 400), ((b"evil.example", b"localhost"), 400)],
)
def test_a_request_has_exactly_one_host(hosts: tuple[bytes, ...], status: int) -> None:
    """Of two, the guard might look at one and the application use the other."""
    sent: list[MutableMapping[str, Any]] = []

    async def served(scope: object, receive: object, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", host) for host in hosts]}
    asyncio.run(RequestGuard(served, [])(scope, receive, send))
    assert sent[0]["status"] == status
