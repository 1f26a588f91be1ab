"""Content types as RFC 2045 writes them: `application/json;charset=utf-8`."""

import re
from functools import lru_cache
from typing import Self

import msgspec

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MAX_LENGTH = 1000
"""Characters of a content type. RFC 6838 allows 127 for type and subtype each. Parsed content types are cached, so a
message must not bring a megabyte."""
_TYPE = re.compile(rf"\s*({_TOKEN})\s*/\s*({_TOKEN})\s*")
_PARAMETER = re.compile(rf';\s*({_TOKEN})\s*=\s*("(?:[^"\\]|\\.)*"|{_TOKEN})\s*')


class MimeType(msgspec.Struct, frozen=True):
    """A content type; `*` stands for any type or subtype, `*+json` for any subtype with that suffix."""

    type: str
    subtype: str
    parameters: dict[str, str] = msgspec.field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.type, self.subtype))

    @classmethod
    def parse(cls, text: str) -> "MimeType":
        """Parse a content type.

        Raises:
            ValueError: The text is not a content type.
        """
        return _parse(text)

    @property
    def essence(self) -> str:
        """The type and subtype, without parameters."""
        return f"{self.type}/{self.subtype}"

    @property
    def suffix(self) -> str | None:
        """The suffix, such as `json` of `application/vnd.order+json`, or None."""
        _, plus, suffix = self.subtype.rpartition("+")
        return suffix if plus else None

    @property
    def charset(self) -> str:
        """The charset parameter, else `utf-8`."""
        return self.parameters.get("charset", "utf-8")

    @property
    def is_json(self) -> bool:
        """Whether the type is `*/json` or has the suffix `+json`."""
        return self.subtype == "json" or self.suffix == "json"

    @property
    def is_avro(self) -> bool:
        """Whether the type is `*/avro` or `avro/binary`, or has the suffix `+avro`."""
        return self.suffix == "avro" or self.subtype == "avro" or self.essence == "avro/binary"

    @property
    def is_text(self) -> bool:
        """Whether the type is `text/*`."""
        return self.type == "text"

    def includes(self, other: Self) -> bool:
        """Return True when `other` is this content type or falls under its wildcard; parameters do not count."""
        if self.type not in ("*", other.type):
            return False
        if self.subtype in ("*", other.subtype):
            return True
        return self.subtype.startswith("*+") and other.suffix == self.subtype[2:]

    def __str__(self) -> str:
        return ";".join((self.essence, *(f"{name}={_quoted(value)}" for name, value in self.parameters.items())))


@lru_cache(maxsize=256)
def _parse(text: str) -> MimeType:
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"a content type of {len(text):,} characters is longer than {_MAX_LENGTH:,}")
    found = _TYPE.match(text)
    if found is None:
        raise ValueError(f"{text!r} is not a content type: expected type/subtype, such as application/json")
    parameters = {}
    end = found.end()
    while end < len(text):
        parameter = _PARAMETER.match(text, end)
        if parameter is None:
            raise ValueError(
                f"{text!r} is not a content type: {text[end:]!r} is not a parameter, such as ;charset=utf-8"
            )
        name, value = parameter.groups()
        parameters[name.lower()] = re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value
        end = parameter.end()
    return MimeType(found[1].lower(), found[2].lower(), parameters)


def _quoted(value: str) -> str:
    return value if re.fullmatch(_TOKEN, value) else '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'


APPLICATION_OCTET_STREAM = MimeType("application", "octet-stream")
