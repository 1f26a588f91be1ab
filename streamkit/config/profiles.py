"""Profile expressions: `cloud`, `!cloud`, `eu & (staging | prod)`, and lists, which are true if one item is."""

import re
from collections.abc import Callable, Collection, Iterable

_TOKEN = re.compile(r"\s*([&|!()]|[^&|!()\s]+)")


def matches(expression: str, active: Collection[str]) -> bool:
    """Return whether at least one of several expressions is true for the active profiles.

    Args:
        expression: Profile expressions, comma-separated.
        active: The active profiles.

    Raises:
        ValueError: An expression is malformed.
    """
    # Each expression is parsed, so that a malformed one is an error whatever the others say.
    results = [_Parser(part, active).parse() for part in expression.split(",")]
    return any(results)


def expanded(profiles: Iterable[str], group_of: Callable[[str], Iterable[str]]) -> list[str]:
    """Return profiles with the members of their groups, each profile once and before its members.

    Args:
        profiles: The profiles.
        group_of: Returns the members of `spring.profiles.group.<profile>`.
    """
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
        return ValueError(f"{expression!r} is not a profile expression; write one such as `a`, `!a`, `a & (b | c)`")
