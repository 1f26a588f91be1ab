"""Faults for tests: which may happen, how often, and the seed that decides when.

A text names them::

    seed=7,duplicate=1%,reorder=2%,drop-connection=0.5%,delay=20ms

The bundled broker (`rocket_broker.requests.fault_injection`) and the binder in memory read the same text. This module
imports nothing of the framework, because the broker imports nothing else of it.
"""

import math
import random
import re
from dataclasses import dataclass, fields
from typing import Final, Self

__all__ = ["Chaos", "Fate"]

_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)%")
_TIME: Final = re.compile(r"(\d+)(ms|s)")
_LONGEST_DELAY: Final = 60.0
_SEEDS: Final = 2**32
_BEFORE: Final = 0.5
"""Share of the dropped connections that end before the request is handled."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to one request.

    Attributes:
        waits: Seconds for which it waits.
        is_overtaken_for: Seconds for which it then waits alone, if it is a send.
        is_repeated: Whether it is handled twice, if it is a send.
        is_lost: Whether the connection ends before it is handled.
        is_answer_lost: Whether the connection ends after it was handled.
    """

    waits: float
    is_overtaken_for: float
    is_repeated: bool
    is_lost: bool
    is_answer_lost: bool


@dataclass(frozen=True, slots=True)
class Chaos:
    """The faults that may happen in a test.

    Attributes:
        seed: Decides when they happen. The same seed and the same requests give the same faults.
        duplicate: Share of the sent messages that are stored twice, from 0 to 1, as when an answer was lost and the
            producer has sent again.
        reorder: Share of the sends that are handled up to `REORDER_SECONDS` later, so that sends behind them may be
            handled first.
        drop_connection: Share of the requests at which the connection ends: before the request is handled, or after
            it, when only its answer is lost.
        delay: Seconds; each request waits for up to as long.
    """

    seed: int
    duplicate: float = 0.0
    reorder: float = 0.0
    drop_connection: float = 0.0
    delay: float = 0.0

    REORDER_SECONDS = 0.05

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a text such as ``seed=7,duplicate=1%``; without a seed, choose one.

        Raises:
            ValueError: The text names an unknown fault, or a value is wrong.
        """
        values: dict[str, float] = {}
        seed = random.randrange(_SEEDS)
        for part in filter(None, map(str.strip, text.split(","))):
            name, equals, value = (each.strip() for each in part.partition("="))
            if name not in _NAMES or not equals:
                raise ValueError(f"chaos {text!r}: {part!r} is not one of {', '.join(_FORMS)}")
            if name in values:
                raise ValueError(f"chaos {text!r} has {name} twice")
            if name == "seed":
                if not value.isdecimal():
                    raise ValueError(f"chaos {text!r}: the seed {value!r} is not a number")
                seed = int(value)
            values[name] = (
                _seconds(text, value) if name == "delay" else 0 if name == "seed" else _share(text, part, value)
            )
        values.pop("seed", None)
        return cls(seed, **{name.replace("-", "_"): value for name, value in values.items()})

    def fate(self, draws: random.Random) -> "Fate":
        """Return what happens to the next request; always six numbers are drawn.

        So the share of one fault does not change when the others happen.
        """
        wait, moved, by, repeated, dropped, before = (draws.random() for _ in range(6))
        is_dropped = dropped < self.drop_connection
        return Fate(
            waits=wait * self.delay,
            is_overtaken_for=self.REORDER_SECONDS * by if moved < self.reorder else 0.0,
            is_repeated=repeated < self.duplicate,
            is_lost=is_dropped and before < _BEFORE,
            is_answer_lost=is_dropped and before >= _BEFORE,
        )

    def draws(self, of: str) -> random.Random:
        """Return the random numbers for one kind of events. Other kinds do not change them."""
        return random.Random(f"{self.seed}/{of}")

    def __str__(self) -> str:
        parts = [f"seed={self.seed}"]
        for name in ("duplicate", "reorder", "drop_connection"):
            share: float = getattr(self, name)
            if share:
                parts.append(f"{name.replace('_', '-')}={share * 100:g}%")
        if self.delay:
            parts.append(f"delay={round(self.delay * 1000)}ms")
        return ",".join(parts)


_NAMES: Final = frozenset(each.name.replace("_", "-") for each in fields(Chaos))
_FORMS: Final = ("seed=7", "duplicate=1%", "reorder=2%", "drop-connection=0.5%", "delay=20ms")


def _share(text: str, part: str, value: str) -> float:
    found = _RATE.fullmatch(value)
    share = float(found[1]) / 100 if found else math.inf
    if share > 1:
        raise ValueError(f"chaos {text!r}: {part!r} is not a share from 0% to 100%")
    return share


def _seconds(text: str, value: str) -> float:
    found = _TIME.fullmatch(value)
    seconds = int(found[1]) / (1000 if found[2] == "ms" else 1) if found else math.inf
    if seconds > _LONGEST_DELAY:
        raise ValueError(f"chaos {text!r}: the delay {value!r} is not a time such as 20ms or 2s, at most 60s")
    return seconds
