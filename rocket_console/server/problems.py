"""What a page says if it cannot be shown: what happened, at which server, and what to do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.exceptions import HTTPException

from rocket_admin.errors import GroupNotFoundError
from rocket_client import NameServersUnreachableError, NoBrokerError, TopicNotFoundError
from rocket_remoting import RemotingError, ResponseError
from rocket_remoting.wire.codes import ResponseCode
from streamkit.errors import BinderError

__all__ = ["Problem", "problem_of"]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Why a page cannot be shown.

    Attributes:
        status: The HTTP status code.
        title: What happened, in a few words.
        text: What happened, in a sentence, with the names and addresses concerned.
        mend: What to do.
    """

    status: int
    title: str
    text: str
    mend: str


_AGAIN: Final = "Load the page again in a few seconds."
_TITLES: Final = {
    400: "Not possible",
    403: "Not allowed",
    404: "Not found",
    405: "Not possible",
    413: "Too large",
    502: "A server refused",
    504: "No answer in time",
}

_KNOWN: Final[Sequence[tuple[type[Exception], int, str, str]]] = (
    (
        TopicNotFoundError,
        404,
        "No such topic",
        "Look for the topic in the list of topics: it may have been deleted, or not been created yet.",
    ),
    (GroupNotFoundError, 404, "No such group", "Look for the group in the list of groups: it may have been deleted."),
    (
        NameServersUnreachableError,
        502,
        "No name server answers",
        "Start the name server, or start the console with its address: streamkit console --name-server HOST:PORT.",
    ),
    (
        NoBrokerError,
        502,
        "No broker is registered",
        "Start a broker, and check that its namesrvAddr is the address of this name server.",
    ),
    (RemotingError, 502, "A server does not answer", f"Check that it runs and can be reached from here. {_AGAIN}"),
    (BinderError, 502, "Kafka does not answer", f"Check that the brokers run and can be reached from here. {_AGAIN}"),
    (TimeoutError, 504, "No answer in time", f"`streamkit doctor` says which server is slow. {_AGAIN}"),
    (ValueError, 400, "Not possible", ""),
)
"""The errors of a cluster and of wrong arguments, the narrower ones first: status, title, what to do."""
_MAY_NOT: Final = "Start the console with the keys of an account that may: --access-key and --secret-key."


def problem_of(error: Exception, *, seconds: float) -> Problem | None:
    """Return what to say about an error; None if it is one of the console itself.

    Args:
        error: The error.
        seconds: The time limit of a page.
    """
    if isinstance(error, HTTPException):
        title = _TITLES.get(error.status_code, "The request was refused")
        return Problem(status=error.status_code, title=title, text=error.detail, mend="")
    text = str(error) or f"the cluster did not answer within {seconds:g} s"
    if isinstance(error, ResponseError):
        is_forbidden = error.code == ResponseCode.NO_PERMISSION
        mend = _MAY_NOT if is_forbidden else "The server's log may say more."
        return Problem(status=502, title="A server refused", text=text, mend=mend)
    for kind, status, title, mend in _KNOWN:
        if isinstance(error, kind):
            return Problem(status=status, title=title, text=text, mend=mend)
    return None
