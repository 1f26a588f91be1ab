"""A program that keeps messages, or sends what is kept, until it is killed.

``keep`` keeps messages as fast as it can and prints the id of each one that is reported as kept; ``send`` sends what is
kept and prints a line for each message; ``finish`` sends all of them and ends. What is sent is appended to a file: the
id of the message and a full stop.
"""

import asyncio
import sys
from pathlib import Path

from streamkit.binder.keeping import MessageKept
from streamkit.messaging.message import Message
from streamkit.patterns.local_store.local_store import LocalStore
from tests.unit.patterns.local_store.away_broker import Broker, keeper_of, message


class Receiver(Broker):
    """Appends the ids of what it stores to a file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = path.open("a", buffering=1)

    async def send(self, message: Message[bytes]) -> None:
        """Store a message."""
        self._file.write(f"{message.headers.id}.\n")
        print("sent", flush=True)


async def main(mode: str, path: str, sent: Path) -> None:
    """Do what the mode says."""
    store = LocalStore(path)
    keeper = keeper_of(store)
    if mode == "keep":
        producer = keeper.producer(Broker(is_away=True))

        async def keep(number: int) -> None:
            while True:
                one = message(b"x" * 100, str(number))
                try:
                    await producer.send(one)
                except MessageKept:
                    print(one.headers.id, flush=True)

        await asyncio.gather(*map(keep, range(8)))
    keeper.producer(Receiver(sent))
    await keeper.start()
    while store.count or mode != "finish":  # noqa: ASYNC110 - until it is killed
        await asyncio.sleep(0.01)
    await keeper.stop(1)
    store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
