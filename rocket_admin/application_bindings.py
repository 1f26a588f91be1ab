"""The bindings that the settings of an application name, as far as an operator needs them: topics and groups."""

import msgspec

__all__ = ["ApplicationBinding"]


class ApplicationBinding(msgspec.Struct, frozen=True, kw_only=True):
    """A binding of an application.

    Attributes:
        binding: Its name.
        topics: The topics, or destinations of another messaging system, that it sends to or receives from.
        group: The group that it receives for; None if the settings name none, as for outputs.
    """

    binding: str
    topics: tuple[str, ...]
    group: str | None = None
