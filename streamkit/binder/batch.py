"""A batch on its way to a listener: several messages, and what became of each of them."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from streamkit.binder.settlement import Settlement
from streamkit.messaging.message import Message

__all__ = ["Batch"]


class Batch(Sequence[Message[Any]]):
    """The payload of the one message that stands for several.

    Attributes:
        errors: Why messages could not be handed over, by their place in the batch: each fails alone.
        settlements: What the listener decided about messages, by their place; the others are accepted.
    """

    def __init__(self, messages: Sequence[Message[Any]]) -> None:
        self._messages = list(messages)
        self.errors: dict[int, Exception] = {}
        self.settlements: dict[int, Settlement] = {}

    @overload
    def __getitem__(self, index: int) -> Message[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message[Any]]: ...
    def __getitem__(self, index: int | slice) -> Message[Any] | list[Message[Any]]:
        return self._messages[index]

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message[Any]]:
        return iter(self._messages)

    @property
    def places(self) -> list[int]:
        """The places of the messages that are handed over."""
        return [place for place in range(len(self)) if place not in self.errors]

    def change(self, change: Callable[[Message[Any]], Message[Any]]) -> None:
        """Put what ``change`` makes of each message in its place."""
        self._messages = [change(message) for message in self._messages]

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Note what the listener decided about the messages it was handed, in their order.

        Raises:
            ValueError: They are fewer or more than the messages.
        """
        places = self.places
        if len(settlements) != len(places):
            raise ValueError(
                f"the listener settled {len(settlements)} message(s), but it was handed {len(places)}: return one "
                "settlement for each, or nothing to accept all"
            )
        self.settlements.update(zip(places, settlements, strict=True))

    def __repr__(self) -> str:
        return f"<Batch of {len(self)}>"
