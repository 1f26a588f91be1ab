"""The page that searches messages: by id, by key, or by time and conditions. Each search has its address.

A search by conditions, or for an id in all topics, goes on in steps: the page says how far it is, and links to the next
step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from starlette.responses import Response

from rocket_admin.broker_answers import BrokerFailure
from rocket_admin.messages import messages_with_id, messages_with_key, search_id
from rocket_admin.offsets import End
from rocket_admin.searches import Search, search
from rocket_admin.targets import TARGET_FORMS, time_or_end_of
from rocket_admin.times import iso_text
from rocket_console.pages.message_table import MESSAGES, stored
from rocket_console.pages.queue_places import places_of, places_text
from rocket_console.pages.section import Page
from rocket_console.pages.visit import Visit
from rocket_console.rendering.addresses import address
from rocket_remoting.wire.message import MessageExt

__all__ = ["PAGES"]

_MOST_WITH_KEY: Final = 64
"""Messages with a key that are asked of each broker, which has a limit of its own."""

_FOUND: Final = replace(
    MESSAGES,
    caption="Found messages",
    empty="No message was found. Check the id, the key and the conditions, or search another time.",
)


@dataclass(frozen=True, kw_only=True)
class _Found:
    """The result of a search.

    Attributes:
        messages: The messages.
        text: How far the search went, in a sentence.
        next_address: The address of the next part; None if the search has ended.
        failures: The brokers that did not answer.
    """

    messages: Sequence[MessageExt]
    text: str
    next_address: str | None = None
    failures: Sequence[BrokerFailure] = ()


async def _show(visit: Visit) -> Response:
    asked = {name: visit.query.get(name, "").strip() for name in ("topic", "id", "key", "begin", "end", "where")}
    found = await _search(visit, asked)
    return visit.page(
        "search.html",
        title="Search messages",
        tables=() if found is None else [visit.table(_FOUND, stored(found.messages))],
        failures=() if found is None else found.failures,
        asked=asked,
        found=found,
        forms=TARGET_FORMS,
    )


async def _search(visit: Visit, asked: Mapping[str, str]) -> _Found | None:
    if not any(asked.values()):
        return None
    if asked["id"]:
        return await _with_id(visit, asked["id"], asked["topic"] or None)
    if not asked["topic"]:
        raise ValueError("name the topic: only an id is searched in all topics")
    begin, end = _time(asked["begin"], "from", End.EARLIEST), _time(asked["end"], "to", End.LATEST)
    if asked["key"]:
        messages = await messages_with_key(
            visit.admin, asked["topic"], asked["key"], begin=begin, end=end, limit=_MOST_WITH_KEY
        )
        text = f"Messages with the key: {len(messages)}. Each broker returns {_MOST_WITH_KEY} of them at most."
        return _Found(messages=messages, text=text)
    return await _by_conditions(visit, asked, begin, end)


async def _with_id(visit: Visit, message_id: str, topic: str | None) -> _Found:
    if topic is not None:
        messages: Sequence[MessageExt] = await messages_with_id(visit.admin, message_id, topic)
    else:
        step = await search_id(visit.admin, message_id, visit.query.get("at", ""), seconds=visit.reads_within)
        if step.next is not None:
            return _Found(
                messages=(),
                text=f"The first {step.searched:,} of {step.topics:,} topics do not have the id. Search the next ones, "
                "or name the topic to search in it alone.",
                next_address=address("messages", id=message_id, at=step.next),
            )
        messages = step.messages
    return _Found(messages=messages, text=f"Records with the id: {len(messages)}.")


async def _by_conditions(
    visit: Visit, asked: Mapping[str, str], begin: datetime | None, end: datetime | None
) -> _Found:
    topic, at = asked["topic"], visit.query.get("at")
    wanted = Search(topic=topic, begin=begin, end=end, conditions=visit.conditions(asked))
    places = None if at is None else places_of(topic, at)
    step = await search(visit.admin, wanted, places, seconds=visit.reads_within)
    text = f"Found {len(step.messages):,} among {step.read:,} messages that were read here."
    if step.left_out:
        text += f" Queues that are not searched, because the topic has too many: {step.left_out:,}."
    if not step.next:
        return _Found(messages=step.messages, text=f"{text} The search has ended.", failures=step.failures)
    # The next part has the times that are meant now, not "30 minutes ago" at a later time.
    times = {"begin": begin and iso_text(begin), "end": end and iso_text(end)}
    return _Found(
        messages=step.messages,
        text=f"{text} Not read yet: up to {step.left:,}.",
        next_address=address("messages", **{**asked, **times}, at=places_text(step.next)),
        failures=step.failures,
    )


def _time(text: str, field: str, open_end: End) -> datetime | None:
    """Return the time of a field; None if it is empty or says that the search is open at this end."""
    if not text or text.lower() == open_end:
        return None
    time = time_or_end_of(text)
    if not isinstance(time, datetime):
        raise ValueError(f"the field {field} is {text!r}, which leaves no time to search: write {open_end}, or a time")
    return time


PAGES: Final = (Page(path="/messages", show=_show),)
