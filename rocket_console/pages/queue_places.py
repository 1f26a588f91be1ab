"""Offsets of a topic's queues in an address: where a live tail or a search goes on."""

from collections.abc import Mapping

import msgspec

from rocket_remoting.wire.message import MessageQueue

__all__ = ["places_of", "places_text"]


def places_text(places: Mapping[MessageQueue, int]) -> str:
    """Return the offsets of queues as a parameter of an address."""
    offsets: dict[str, dict[int, int]] = {}
    for queue, offset in places.items():
        offsets.setdefault(queue.broker_name, {})[queue.queue_id] = offset
    return msgspec.json.encode(offsets).decode()


def places_of(topic: str, text: str) -> dict[MessageQueue, int]:
    """Return the offsets of a topic's queues that a parameter has.

    Raises:
        ValueError: The text is not one of `places_text`.
    """
    try:
        offsets = msgspec.json.decode(text, type=dict[str, dict[int, int]])
    except msgspec.DecodeError as error:
        raise ValueError(f"the places in the queues cannot be read ({error}): open the page again") from None
    return {
        MessageQueue(topic, broker, queue): offset
        for broker, places in offsets.items()
        for queue, offset in places.items()
    }
