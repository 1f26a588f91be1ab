"""Profile expressions: `cloud`, `!cloud`, `eu & (staging | prod)`, and lists of which one suffices."""

import re
from collections.abc import Callable, Collection, Iterable

_TOKEN = re.compile(r"\s*([&|!()]|[^&|!()\s]+)")


def matches(expression: str, active: Collection[str]) -> bool:
    """True when one of the comma-separated expressions holds for the active profiles.

    Raises:
        ValueError: An expression is malformed.
    """
    return any(_Parser(part, active).parse() for part in expression.split(","))


def expanded(profiles: Iterable[str], group_of: Callable[[str], Iterable[str]]) -> list[str]:
    """The profiles, each followed by those of its group (`spring.profiles.group.<profile>`), each once."""
    found: dict[str, None] = {}

    def add(profile: str) -> None:
        if profile not in found:
            found[profile] = None
            for member in group_of(profile):
                add(member)

    for profile in profiles:
        add(profile)
    return list(found)


class _Parser:
    """or := and {"|" and};  and := not {"&" not};  not := "!" not | "(" or ")" | profile"""

    def __init__(self, expression: str, active: Collection[str]) -> None:
        self._expression = expression
        self._active = active
        self._tokens = _TOKEN.findall(expression)

    def parse(self) -> bool:
        result = self._or()
        if self._tokens:
            raise self._malformed()
        return result

    def _or(self) -> bool:
        result = self._and()
        while self._accept("|"):
            result = self._and() or result
        return result

    def _and(self) -> bool:
        result = self._not()
        while self._accept("&"):
            result = self._not() and result
        return result

    def _not(self) -> bool:
        if self._accept("!"):
            return not self._not()
        if self._accept("("):
            result = self._or()
            if not self._accept(")"):
                raise self._malformed()
            return result
        if not self._tokens or self._tokens[0] in "&|!()":
            raise self._malformed()
        return self._tokens.pop(0) in self._active

    def _accept(self, token: str) -> bool:
        if self._tokens and self._tokens[0] == token:
            self._tokens.pop(0)
            return True
        return False

    def _malformed(self) -> ValueError:
        expression = self._expression.strip()
        return ValueError(f"{expression!r} is no profile expression, such as `a`, `!a`, `a & (b | c)`")
