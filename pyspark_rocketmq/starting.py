"""The positions at which reading begins and ends, as options name them.

::

    earliest, latest                                       the queue's ends
    committed                                              where the consumer group is, else the earliest
    {"topic":{"broker-a":{"0":23,"1":-2,"2":-1}}}          an offset for each queue; -2 earliest, -1 latest
    1700000000000                                          the first message stored at or after that moment
    {"topic":{"broker-a":{"0":1700000000000}}}             a moment for each queue
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, overload

from pyspark_rocketmq.errors import OffsetError

EARLIEST, LATEST = -2, -1

Numbers = Mapping[str, Mapping[str, Mapping[int, int]]]
"""Topic → broker → queue id → number."""


class Strategy(Enum):
    """What to do with a queue that has no message at or after the requested time."""

    ERROR = "error"
    LATEST = "latest"


@dataclass(frozen=True)
class Position:
    """A position in every queue.

    Attributes:
        kind: ``earliest``, ``latest``, ``committed``, ``offsets``, ``timestamp`` or ``timestamps``.
        option: The option that said so, for errors.
        timestamp: The moment, in ms.
        numbers: Offsets or moments of each queue.
        strategy: What becomes of queues without such a message.
    """

    kind: str
    option: str = ""
    timestamp: int = 0
    numbers: Numbers = field(default_factory=dict)
    strategy: Strategy = Strategy.ERROR


def timestamps_option(name: str, text: str, strategy: Strategy) -> Position:
    """Return the position of an option with a time for each queue."""
    return Position("timestamps", option=name, numbers=offsets_option(name, text, leaves=dict), strategy=strategy)


@overload
def offsets_option(name: str, text: str, *, leaves: type[dict[str, int]]) -> dict[str, dict[str, dict[int, int]]]: ...
@overload
def offsets_option(name: str, text: str, *, leaves: type[list[int]]) -> dict[str, dict[str, list[int]]]: ...
def offsets_option(name: str, text: str, *, leaves: type[object]) -> object:
    """Parse an option's JSON: topic → broker → numbers.

    Args:
        name: The option.
        text: Its value.
        leaves: `dict`, queue id → number, or `list`, queue ids.

    Raises:
        OffsetError: It is no such JSON.
    """
    example = '{"topic":{"broker-a":{"0":23}}}' if leaves is dict else '{"topic":{"broker-a":[0,1]}}'
    wrong = OffsetError(f"option {name!r} is {text!r}: write JSON as {example}")
    try:
        value = json.loads(text)
    except ValueError as error:
        raise OffsetError(f"{wrong} ({error})") from None
    if not isinstance(value, dict) or not value:
        raise wrong
    for brokers in value.values():
        if not isinstance(brokers, dict):
            raise wrong
        for broker, queues in brokers.items():
            if not isinstance(queues, leaves):
                raise wrong
            brokers[broker] = _ids(queues, wrong)
    return value


def _ids(queues: Any, wrong: OffsetError) -> dict[int, int] | list[int]:
    if isinstance(queues, list):
        if not all(_is_number(number) and number >= 0 for number in queues):
            raise wrong
        return queues
    if not all(key.isdecimal() and _is_number(number) and number >= EARLIEST for key, number in queues.items()):
        raise wrong
    return {int(key): number for key, number in queues.items()}


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
