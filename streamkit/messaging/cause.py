"""The text of a listener's exception, also if its class fails to make one."""

__all__ = ["kind_and_text", "text_of"]


def text_of(error: BaseException) -> str:
    """Return an exception's text, or a note with the name of the exception that `str` raised."""
    try:
        return str(error)
    except Exception as failure:
        return f"<its text cannot be made: {type(failure).__name__}>"


def kind_and_text(error: BaseException) -> str:
    """Return an exception's class and text."""
    return f"{type(error).__name__}: {text_of(error)}"
