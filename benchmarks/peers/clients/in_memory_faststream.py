"""FastStream's test brokers: an order comes, a receipt leaves and is received, one order after the other."""
# mypy: ignore-errors

import sys

from pydantic import BaseModel

from benchmarks.peers.clients.serving import AsyncClient, Command, Result, run


class Order(BaseModel):
    """The payload that the listener receives."""

    number: int
    customer: str
    price: float


class Receipt(BaseModel):
    """The payload that it returns, and that the second listener receives."""

    number: int
    total: float


def _brokers(system: str) -> tuple[object, type]:
    if system == "kafka":
        from faststream.kafka import KafkaBroker, TestKafkaBroker

        return KafkaBroker(logger=None), TestKafkaBroker
    if system == "nats":
        from faststream.nats import NatsBroker, TestNatsBroker

        return NatsBroker(logger=None), TestNatsBroker
    from faststream.redis import RedisBroker, TestRedisBroker

    return RedisBroker(logger=None), TestRedisBroker


class InMemory(AsyncClient):
    """A test broker with both listeners."""

    async def connect(self, address: str) -> None:
        """Start the test broker of a system."""
        broker, test_broker = _brokers(address)
        self._received = 0

        @broker.subscriber("orders")
        @broker.publisher("receipts")
        async def answer(order: Order) -> Receipt:
            return Receipt(number=order.number, total=order.price)

        @broker.subscriber("receipts")
        async def receive(receipt: Receipt) -> None:
            self._received += 1

        self._broker = await test_broker(broker).__aenter__()

    async def _trip(self) -> None:
        before = self._received
        await self._broker.publish(Order(number=7, customer="Ann", price=3.5), "orders")
        if self._received == before:
            raise RuntimeError("the receipt was not received")

    async def do(self, command: Command) -> Result:
        """Make trips for some seconds; a test broker makes them one after the other."""
        return await self._until(command["seconds"], self._trip, 1)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("name a system: kafka, nats or redis")
    run(InMemory())
