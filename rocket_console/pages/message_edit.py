"""The page that edits the body and the properties of a message, and sends the edited one as a new message."""

from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from rocket_admin.messages import fresh_copy, origin_topic, send_message
from rocket_admin.replays import REPLAYED_LETTER
from rocket_console.pages.fields import properties_of, required, text_or_none
from rocket_console.pages.message import record_of
from rocket_console.pages.section import Action, Page
from rocket_console.pages.tabs import message_tabs
from rocket_console.pages.visit import Visit
from rocket_console.rendering.addresses import address
from rocket_remoting.wire.message import MessageExt
from rocket_remoting.wire.properties import PROPERTY_KEYS, PROPERTY_SHARDING_KEY, PROPERTY_TAGS
from rocket_remoting.wire.topics import is_dead_letter_topic
from streamkit.printable_text import LINES, printable

__all__ = ["ACTIONS", "PAGES"]

_LONGEST: Final = 1024 * 1024
"""Bytes of a body that can be edited in a browser."""
_MAX_FORM: Final = 16 * 1024 * 1024
_OF_FIELDS: Final = (PROPERTY_TAGS, PROPERTY_KEYS)
"""Properties with fields of their own."""


async def _form(visit: Visit) -> Response:
    record = await record_of(visit)
    copy = fresh_copy(record, origin_topic(record))
    editable, kept = _properties(copy.properties)
    return visit.page(
        "message_edit.html",
        title=f"Message {record.msg_id}",
        message_id=record.offset_message_id,
        to=copy.topic,
        body=_editable_body(record),
        size=len(record.body),
        tags=copy.tags or "",
        keys=copy.keys or "",
        properties="\n".join(f"{name}={value}" for name, value in editable.items()),
        kept=sorted(kept),
        is_letter=is_dead_letter_topic(record.topic),
        tabs=message_tabs(record.offset_message_id, "edit"),
    )


def _editable_body(record: MessageExt) -> str | None:
    """Return the body as the text of a field; None if a browser would not send it back as it is."""
    if len(record.body) > _LONGEST:
        return None
    try:
        text = bytes(record.body).decode()
    except UnicodeDecodeError:
        return None
    text = text.replace("\r\n", "\n")
    return text if "\r" not in text and printable(text, keep=LINES) == text else None


def _properties(properties: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the properties that can be lines of a field, and those that can not and so are copied as they are."""
    editable: dict[str, str] = {}
    kept: dict[str, str] = {}
    for name, value in properties.items():
        if name in _OF_FIELDS:
            continue
        is_line = name.strip() == name and "=" not in name and (name + value).isprintable()
        (editable if is_line and name != PROPERTY_SHARDING_KEY else kept)[name] = value
    return editable, kept


async def _send(visit: Visit) -> Response:
    record, form = await record_of(visit), visit.form
    message = fresh_copy(record, required(form, "to"))
    _, kept = _properties(message.properties)
    message.properties = kept | properties_of(form.get("properties", ""))
    message.tags, message.keys = text_or_none(form, "tags"), text_or_none(form, "keys")
    before = _editable_body(record)
    if before is not None and "body" in form:
        body = form["body"].replace("\r\n", "\n")
        if body != before:
            is_dos = b"\r\n" in bytes(record.body)
            message.body = (body.replace("\n", "\r\n") if is_dos else body).encode()
    if is_dead_letter_topic(record.topic):
        message.properties[REPLAYED_LETTER] = record.offset_message_id
    sent = await send_message(visit.admin, message)
    return visit.done(address("messages", sent.offset_message_id or sent.message_id))


PAGES: Final = (Page(path="/messages/{id}/edit", show=_form),)
ACTIONS: Final = (
    Action(
        path="/messages/{id}/edit",
        name="message.edit",
        done="The edited message was sent. This is its page.",
        act=_send,
        recorded=("to", "tags", "keys"),
        measured=("properties", "body"),
        max_form=_MAX_FORM,
    ),
)
