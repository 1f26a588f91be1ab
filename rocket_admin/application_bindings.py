"""The bindings that the settings of an application name, as far as an operator needs them: topics and groups."""

from dataclasses import dataclass

__all__ = ["ApplicationBinding"]


@dataclass(frozen=True, kw_only=True)
class ApplicationBinding:
    """A binding of an application.

    Attributes:
        binding: Its name.
        topics: The topics, or destinations of another messaging system, that it sends to or receives from.
        group: The group that it receives for; None if the settings name none, as for outputs.
    """

    binding: str
    topics: tuple[str, ...]
    group: str | None = None
