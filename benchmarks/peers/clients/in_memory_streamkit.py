"""streamkit's binder in memory: an order comes, a receipt leaves and is received, one order after the other."""

import asyncio

from benchmarks.orders import Order, Receipt
from benchmarks.peers.clients.serving import AsyncClient, Command, Result, order, run
from streamkit import Message, StreamApplication, send_to

STREAM = "spring.cloud.stream"
JSON = {"contentType": "application/json"}


class InMemory(AsyncClient):
    """An application with both listeners."""

    async def connect(self, address: str) -> None:
        """Start the application."""
        bindings = f"{STREAM}.bindings"
        self._app = app = StreamApplication(
            properties={
                f"{STREAM}.default-binder": "inmemory",
                f"{STREAM}.output-bindings": "out",
                f"{bindings}.out.destination": "orders",
                f"{bindings}.orders.destination": "orders",
                f"{bindings}.orders.group": "bench",
                f"{bindings}.receipts.destination": "receipts",
                f"{bindings}.in.destination": "receipts",
                f"{bindings}.in.group": "bench",
            }
        )
        self._received = asyncio.Semaphore(0)

        @app.stream_listener("orders")
        @send_to("receipts")
        async def answer(order: Order) -> Receipt:
            return Receipt(order.number, order.price)

        @app.stream_listener("in")
        async def receive(receipt: Receipt) -> None:
            self._received.release()

        await app.__aenter__()
        self._send = app.channel("out").asend

    async def _trip(self) -> None:
        await self._send(Message(order(7), JSON))
        await self._received.acquire()

    async def do(self, command: Command) -> Result:
        """Make trips for some seconds, a number of them at once."""
        return await self._until(command["seconds"], self._trip, 1, command["at_once"])


if __name__ == "__main__":
    run(InMemory())
