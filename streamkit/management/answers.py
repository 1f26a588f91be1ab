"""Asks an application's binders something, all at once, and waits for none of them for long."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from streamkit.binder.binder import Binder

__all__ = ["NoAnswer", "answers"]

_Answer = TypeVar("_Answer")

_PATIENCE: Final = 5.0
"""Seconds a binder gets to answer."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """A binder has not answered.

    Attributes:
        reason: Why not.
    """

    reason: str


async def answers(
    binders: Iterable[Binder], question: Callable[[Binder], Awaitable[_Answer]]
) -> Mapping[str, _Answer | NoAnswer]:
    """Return what each binder answers, by the binders' names."""
    asked = list(binders)
    found = await asyncio.gather(*(_answer(question(binder)) for binder in asked))
    return {binder.name: answer for binder, answer in zip(asked, found, strict=True)}


async def _answer(answer: Awaitable[_Answer]) -> _Answer | NoAnswer:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await answer
    except TimeoutError:
        return NoAnswer(f"no answer within {_PATIENCE:g} s")
    except Exception as error:  # a binder that breaks its promise takes no other along
        return NoAnswer(str(error) or repr(error))
