"""Texts of others, such as payloads and values of settings, as a terminal may show them."""

__all__ = ["visible"]


def visible(text: str, *, keep: str = "") -> str:
    """Return a text without characters that change the state of a terminal: these are written as escapes.

    Args:
        text: The text.
        keep: Characters that stay, such as line feeds.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode() for each in text
    )
