"""The answers of all brokers to one question. A broker that does not answer is a failure among them, not the end."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from rocket_client import Admin
from rocket_remoting import RemotingError

__all__ = ["BrokerAnswers", "BrokerFailure", "ask_masters"]

T = TypeVar("T")


class BrokerFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A broker that did not answer, or refused.

    Attributes:
        broker_name: The broker.
        address: The address that was asked.
        reason: Why there is no answer, in one sentence.
    """

    broker_name: str
    address: str
    reason: str


class BrokerAnswers(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The answers of the masters of a cluster.

    Attributes:
        answers: The answers by broker name, in the order of the names.
        failures: The brokers that gave none.
    """

    answers: Mapping[str, T]
    failures: tuple[BrokerFailure, ...]


async def ask_masters(
    admin: Admin,
    ask: Callable[[str], Awaitable[T]],
    brokers: Iterable[str] | None = None,
    *,
    masters: Mapping[str, str] | None = None,
) -> BrokerAnswers[T]:
    """Ask all masters at once, or those of some brokers.

    Args:
        admin: A running admin.
        ask: Sends the question to the address that it gets, and returns the answer.
        brokers: Names of brokers; by default all.
        masters: The addresses of masters by broker name, if they are known; by default a name server is asked for
            them, which costs as much as a question of its own.

    Raises:
        NoBrokerError: No master is registered.
        NameServersUnreachableError: No name server answered.
        ValueError: No master of a named broker is registered.
    """
    asked = sorted((await admin.masters(brokers) if masters is None else masters).items())
    results = await asyncio.gather(*(_answer(name, address, ask) for name, address in asked))
    answers = {name: result for (name, _), result in zip(asked, results, strict=True)}
    return BrokerAnswers(
        answers={name: result for name, result in answers.items() if not isinstance(result, BrokerFailure)},
        failures=tuple(result for result in results if isinstance(result, BrokerFailure)),
    )


async def _answer(broker_name: str, address: str, ask: Callable[[str], Awaitable[T]]) -> T | BrokerFailure:
    try:
        return await ask(address)
    except RemotingError as error:
        return BrokerFailure(broker_name=broker_name, address=address, reason=str(error))
