"""A section of the console: an entry of the navigation, with its key, and the addresses below it."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from rocket_console.pages.visit import Visit

__all__ = ["MAX_FORM", "Action", "Handler", "Page", "Section"]

Handler = Callable[[Visit], Awaitable[Response]]

MAX_FORM: Final = 64 * 1024
"""Bytes of a form, unless its action says otherwise."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page, or a fragment of an open page, at an address. It changes nothing, so viewers may see it.

    Attributes:
        path: The path in starlette's form, such as `/topics/{topic}`.
        show: Returns the response.
    """

    path: str
    show: Handler


@dataclass(frozen=True, kw_only=True)
class Action:
    """A change that a form makes: for operators only, recorded in the audit log.

    The path's parameters are recorded by their names, and those fields of the form that are named here.

    Attributes:
        path: The path in starlette's form. A page may have the same one, to ask first.
        name: What the change is, for the audit log: `topic.create`.
        done: What the next page says after it, in a sentence.
        act: Makes the change, and returns the response: mostly ``visit.done(address)``.
        recorded: Fields of the form that the audit log has; never a body.
        measured: Fields of the form of which the audit log has the number of bytes: bodies, and what may be as secret.
        max_form: The most bytes of the form.
    """

    path: str
    name: str
    done: str
    act: Handler
    recorded: Sequence[str] = ()
    measured: Sequence[str] = ()
    max_form: int = MAX_FORM


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section.

    Attributes:
        title: The entry of the navigation.
        path: The address that the entry leads to.
        key: The letter that leads there after `g`; no other section has it.
        pages: Its pages.
        actions: Its actions.
    """

    title: str
    path: str
    key: str
    pages: Sequence[Page]
    actions: Sequence[Action] = ()
