"""The body of a message as views for people: a record of Avro, JSON with indents, text, and bytes in hexadecimal."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from rocket_admin.avro_schemas import AvroRecord, is_avro
from rocket_admin.previews import body_text

__all__ = ["BodyView", "body_views"]

_LONGEST: Final = 256 * 1024
"""Characters of a body that a view shows."""
_DUMPED: Final = 4096
"""Bytes that the hexadecimal view shows."""
_LINE: Final = 16


@dataclass(frozen=True, kw_only=True)
class BodyView:
    """One view of a body.

    Attributes:
        title: What it is.
        text: The text.
        is_open: Whether it is shown at first.
        is_cut: Whether the rest of the body is left out.
    """

    title: str
    text: str
    is_open: bool
    is_cut: bool


def body_views(body: bytes, content_type: str | None, record: AvroRecord | None = None) -> Sequence[BodyView]:
    """Return the views of a body, the most readable one first; the bytes are always among them.

    Args:
        body: The body, decompressed.
        content_type: The sender's content type, if the message has one.
        record: What a schema of Avro makes of the body; None if no schema is known for it.
    """
    text = body_text(body, content_type)
    is_text = text != body.hex(" ")
    views = []
    if record is not None and record.text is not None:
        views.append(_text_view(f"Avro, with the schema {record.file}", record.text))
    elif is_avro(content_type):
        views.append(BodyView(title="Avro", text=_why_no_record(record), is_open=True, is_cut=False))
    if is_text:
        kind = "JSON" if _is_json(text) else "Text"
        views.append(replace(_text_view(kind, text), is_open=not views))
    dump = BodyView(title="Bytes", text=_dump(body[:_DUMPED]), is_open=not views, is_cut=len(body) > _DUMPED)
    return [*views, dump]


def _text_view(title: str, text: str) -> BodyView:
    return BodyView(title=title, text=text[:_LONGEST], is_open=True, is_cut=len(text) > _LONGEST)


def _why_no_record(record: AvroRecord | None) -> str:
    if record is not None:
        return f"This is not a record of the schema {record.file}: {record.problem}."
    return (
        "The schema of this body is not known here. Start the console with --schemas DIRECTORY, in which a file has "
        "the schema; its name is that of the topic or of the content type, such as order.v1.avsc for "
        "application/vnd.order.v1+avro."
    )


def _is_json(text: str) -> bool:
    if text[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _dump(body: bytes) -> str:
    """Return bytes in lines: the place of the first one, their values, and those that are ASCII."""
    lines = []
    for place in range(0, len(body), _LINE):
        part = body[place : place + _LINE]
        characters = "".join(chr(each) if 32 <= each < 127 else "." for each in part)
        lines.append(f"{place:08x}  {part.hex(' '):<{3 * _LINE}} {characters}")
    return "\n".join(lines) or "The body is empty."
