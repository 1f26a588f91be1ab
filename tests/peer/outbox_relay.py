"""A process that relays an outbox and appends the id of each message sent to a file.

The messages go to the binder in memory, one after the other for each key, each taking 10 ms.
"""

import asyncio
import os
import signal

from sqlalchemy.ext.asyncio import create_async_engine

from streamkit import ChannelInterceptor, Message, StreamApplication
from streamkit.events import message_sent
from streamkit.patterns.outbox import OUTBOX_ID, Outbox

SETTINGS = {
    "spring.cloud.stream.default-binder": "inmemory",
    "spring.cloud.stream.output-bindings": "orders",
    "streamkit.outbox.lease": "2s",
    "streamkit.outbox.poll-interval": "100ms",
    "streamkit.outbox.batch-size": 40,
}


class Slow(ChannelInterceptor):
    """Takes time for each message."""

    async def pre_send(self, message: Message[object], channel: object) -> Message[object]:
        await asyncio.sleep(0.01)
        return message


def relay_until_terminated(url: str, file: str) -> None:
    """Relay the outbox of a database until SIGTERM, which ends the application in order."""
    log = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    asyncio.run(_relay(url, log))


async def _relay(url: str, log: int) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    app = StreamApplication(config_location="optional:/none", properties=SETTINGS)
    app.add_interceptor(Slow(), "orders")
    engine = create_async_engine(url)
    Outbox(app, engine, "orders")

    def note(_: object, *, message: Message[object], binding: str) -> None:
        os.write(log, f"{message.headers[OUTBOX_ID]}\n".encode())

    message_sent.connect(note, sender=app)
    async with app:
        await ended.wait()
    await engine.dispose()
