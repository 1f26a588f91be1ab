"""`python -m samples.producer`: a web application that sends messages on request.

GET /send?msg=tcever     sends the text
GET /orderly             sends 创建, 支付, 退款 to one queue, in that order
"""

import asyncio
import socket
from contextlib import suppress
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from streamkit import Message, Source, StreamApplication, StreamkitError
from streamkit.messaging.headers import PARTITION

app = StreamApplication(Source, config_location=Path(__file__).parent)


async def send(request: Request) -> PlainTextResponse:
    """Send the query's `msg`."""
    text = request.query_params.get("msg")
    if text is None:
        return PlainTextResponse("Say what to send: /send?msg=tcever", status_code=400)
    await app.bound(Source).output.asend(Message(text))
    return PlainTextResponse(f"Hello RocketMQ Binder, send {text}")


async def orderly(request: Request) -> PlainTextResponse:
    """Send the life of an order, each step to queue 0."""
    for step in ("创建", "支付", "退款"):
        await app.bound(Source).output.asend(Message.create(step, {PARTITION: 0}))
    return PlainTextResponse("OK")


async def unsent(request: Request, error: Exception) -> PlainTextResponse:
    """Return the response to a request whose message could not be sent."""
    return PlainTextResponse(f"Not sent: {error}", status_code=503)


async def main() -> None:
    """Serve until interrupted."""
    web = Starlette(
        routes=[Route("/send", send), Route("/orderly", orderly)], exception_handlers={StreamkitError: unsent}
    )
    async with app:
        listening = socket.create_server(("127.0.0.1", int(app.environment.text("server.port") or 8081)))
        print(f"Try http://127.0.0.1:{listening.getsockname()[1]}/send?msg=tcever", flush=True)
        await uvicorn.Server(uvicorn.Config(web, log_level="warning")).serve(sockets=[listening])


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):  # Ctrl-C ends the process, after everything is stopped
        asyncio.run(main())
