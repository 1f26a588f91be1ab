"""A batch of messages for one call of a listener, with the settlement or the error of each message."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

from streamkit.messaging.message import Message
from streamkit.settlement import Settlement

__all__ = ["Batch"]


class Batch(Sequence[Message[Any]]):
    """The payload of the message that carries a batch to the listener: a sequence of messages.

    Attributes:
        errors: The conversion errors, by the message's index. Such a message is left out of the listener's list.
        settlements: The settlements that the listener returned, by the message's index.
        left_out: The settlements of messages that the listener is not called with, by the message's index.
    """

    def __init__(self, messages: Sequence[Message[Any]]) -> None:
        self._messages = list(messages)
        self.errors: dict[int, Exception] = {}
        self.settlements: dict[int, Settlement] = {}
        self.left_out: dict[int, Settlement] = {}

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
        """The indexes of the messages that the listener receives: not left out, and without a conversion error."""
        return [place for place in range(len(self)) if place not in self.errors and place not in self.left_out]

    def change(self, change: Callable[[Message[Any]], Message[Any]]) -> None:
        """Replace each message by ``change(message)``."""
        self._messages = [change(message) for message in self._messages]

    def leave_out(self, place: int, settlement: Settlement) -> None:
        """Do not call the listener with the message at that index; ``settlement`` is its settlement."""
        self.left_out[place] = settlement

    def settle(self, settlements: Sequence[Settlement]) -> None:
        """Record the listener's settlements of the messages that it received, in their order.

        Raises:
            ValueError: There are fewer or more settlements than messages.
        """
        places = self.places
        if len(settlements) != len(places):
            raise ValueError(
                f"the listener settled {len(settlements)} message(s), but received {len(places)}: return one "
                "settlement for each, or nothing to accept all"
            )
        self.settlements.update(zip(places, settlements, strict=True))

    def __repr__(self) -> str:
        return f"<Batch of {len(self)}>"
