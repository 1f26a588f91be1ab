"""taskiq's broker in memory: a task is called with an order, and returns a receipt, which the caller receives."""
# mypy: ignore-errors

from pydantic import BaseModel
from taskiq import InMemoryBroker

from benchmarks.peers.clients.serving import AsyncClient, Command, Result, run


class Order(BaseModel):
    """The argument of the task."""

    number: int
    customer: str
    price: float


class Receipt(BaseModel):
    """What it returns."""

    number: int
    total: float


class InMemory(AsyncClient):
    """A broker that runs tasks where they are called."""

    async def connect(self, address: str) -> None:
        """Start the broker."""
        broker = InMemoryBroker(await_inplace=True)

        @broker.task
        async def answer(order: Order) -> Receipt:
            return Receipt(number=order.number, total=order.price)

        await broker.startup()
        self._task, self._broker = answer, broker

    async def _trip(self) -> None:
        called = await self._task.kiq(Order(number=7, customer="Ann", price=3.5))
        result = await called.get_result()
        result.raise_for_error()

    async def do(self, command: Command) -> Result:
        """Make trips for some seconds, a number of them at once."""
        return await self._until(command["seconds"], self._trip, 1, command["at_once"])


if __name__ == "__main__":
    run(InMemory())
