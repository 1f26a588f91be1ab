"""Forms that browsers send, as fields by name."""

from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

__all__ = ["read_form"]

_TYPE = "application/x-www-form-urlencoded"
_MOST_FIELDS = 200


async def read_form(request: Request, most: int) -> Mapping[str, str]:
    """Return the fields of a form; of several with the same name, their values in a line each.

    Args:
        request: The request, whose body is read.
        most: The most bytes of the body.

    Raises:
        HTTPException: The body is too large, or no form.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _TYPE:
        raise HTTPException(415, f"expected a form ({_TYPE})")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise HTTPException(413, f"the form has more than {most:,} bytes")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError:
        raise HTTPException(400, "the form is not readable: its text is not UTF-8, or it has too many fields") from None
    fields: dict[str, str] = {}
    for name, value in pairs:
        fields[name] = f"{fields[name]}\n{value}" if name in fields else value
    return fields
