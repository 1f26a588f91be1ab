"""`python -m tests.peer.outbox_relay URL LOG`: relays an outbox and appends the id of each message sent to a file.

The messages go to the binder in memory, one after the other for each key, each taking 10 ms. The process ends with its
standard input.
"""

import asyncio
import os
import sys

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


async def main(url: str, log: int) -> None:
    """Relay until standard input ends."""
    app = StreamApplication(config_location="optional:/none", properties=SETTINGS)
    app.add_interceptor(Slow(), "orders")
    engine = create_async_engine(url)
    Outbox(app, engine, "orders")

    def note(_: object, *, message: Message[object], binding: str) -> None:
        os.write(log, f"{message.headers[OUTBOX_ID]}\n".encode())

    message_sent.connect(note, sender=app)
    async with app:
        await asyncio.to_thread(sys.stdin.read)
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)))
