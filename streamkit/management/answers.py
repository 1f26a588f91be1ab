"""Questions to all binders of an application at once, with a time limit."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from streamkit.binder.binder import Binder

__all__ = ["NoAnswer", "answers"]

_Answer = TypeVar("_Answer")

_PATIENCE: Final = 5.0
"""The seconds in which a binder has to answer."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The result for a binder that did not answer.

    Attributes:
        reason: Why the binder did not answer.
    """

    reason: str


async def answers(
    binders: Iterable[Binder], question: Callable[[Binder], Awaitable[_Answer]]
) -> Mapping[str, _Answer | NoAnswer]:
    """Return the answers of the binders, by name.

    Args:
        binders: The binders to ask.
        question: Called with each binder; returns the answer. A binder that raises, or takes more than five seconds,
            yields a `NoAnswer`.
    """
    asked = list(binders)
    found = await asyncio.gather(*(_answer(question(binder)) for binder in asked))
    return {binder.name: answer for binder, answer in zip(asked, found, strict=True)}


async def _answer(answer: Awaitable[_Answer]) -> _Answer | NoAnswer:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await answer
    except TimeoutError:
        return NoAnswer(f"no answer within {_PATIENCE:g} s")
    except Exception as error:  # the failure of one binder must not hide the answers of the others
        return NoAnswer(str(error) or repr(error))
