"""`python -m benchmarks.bystander`: a healthy client, which sends and pulls one message after the other.

A message is due every 10 ms, and so is a pull, whether the broker answers or not; what is late is reckoned from when
it was due. So a broker that stands still for a second has made a hundred requests late, not one.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field

import click

from rocket_remoting import TcpTransport
from rocket_remoting.wire.codes import ResponseCode
from tests.end_to_end.raw_client import RawClient

__all__ = ["TOPIC", "Record"]

TOPIC = "bystander"
EVERY_SECONDS = 0.01
BODY = b"x" * 100


@dataclass
class Record:
    """The requests and answers of the client.

    Attributes:
        sends: When each send was due, in seconds of the monotonic clock, and how many seconds later it was answered.
        pulls: The same of the pulls.
        acknowledged: How many messages were acknowledged.
        refused: How many were not.
    """

    sends: list[tuple[float, float]] = field(default_factory=list)
    pulls: list[tuple[float, float]] = field(default_factory=list)
    acknowledged: int = 0
    refused: int = 0


async def watch(address: str, stop: asyncio.Event) -> Record:
    """Send and pull until told to stop."""
    record = Record()
    sender, puller = [await RawClient.connect(TcpTransport(), address) for _ in range(2)]
    await sender.create_topic(TOPIC)

    async def send() -> None:
        answer = await sender.try_send(TOPIC, BODY)
        if answer.code == ResponseCode.SUCCESS:
            record.acknowledged += 1
        else:
            record.refused += 1

    async def pull() -> None:
        await puller.pull(TOPIC, max(0, record.acknowledged - 1))

    async def repeat(request: Callable[[], Awaitable[None]], times: list[tuple[float, float]]) -> None:
        due = time.monotonic()
        while not stop.is_set():
            await asyncio.sleep(due - time.monotonic())
            await request()
            times.append((due, time.monotonic() - due))
            due += EVERY_SECONDS

    await asyncio.gather(repeat(send, record.sends), repeat(pull, record.pulls))
    for client in (sender, puller):
        await client.connection.close()
    return record


@click.command()
@click.argument("address")
def main(*, address: str) -> None:
    """Send to the broker at ADDRESS and pull from it until a line comes; then print the record as JSON."""

    async def run() -> Record:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_reader(0, stop.set)
        return await watch(address, stop)

    print(json.dumps(asdict(asyncio.run(run()))))


if __name__ == "__main__":
    main()
