"""What an exception of a listener is told as, whatever its class does instead of making a text."""

__all__ = ["kind_and_text", "text_of"]


def text_of(error: BaseException) -> str:
    """Return an exception's text; where it cannot be made, that."""
    try:
        return str(error)
    except Exception as failure:
        return f"<its text cannot be made: {type(failure).__name__}>"


def kind_and_text(error: BaseException) -> str:
    """Return its class and its text."""
    return f"{type(error).__name__}: {text_of(error)}"
