"""Profile expressions: `cloud`, `!cloud`, `eu & (staging | prod)`, and lists, which are true if one item is.

As in Spring, `&` and `|` are mixed only with brackets: neither binds stronger.
"""

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
    """all := not {"&" not} | not {"|" not};  not := "!" not | "(" all ")" | profile"""

    def __init__(self, expression: str, active: Collection[str]) -> None:
        self._expression = expression
        self._active = active
        self._tokens = _TOKEN.findall(expression)

    def parse(self) -> bool:
        result = self._all()
        if self._tokens:
            raise self._malformed()
        return result

    def _all(self) -> bool:
        results = [self._not()]
        operator = self._tokens[0] if self._tokens and self._tokens[0] in "&|" else None
        while operator is not None and self._accept(operator):
            results.append(self._not())
        if operator is not None and self._tokens and self._tokens[0] in "&|":
            raise ValueError(
                f"{self._expression.strip()!r} mixes & and | without brackets: write `(a & b) | c` or `a & (b | c)`"
            )
        return all(results) if operator == "&" else any(results)

    def _not(self) -> bool:
        if self._accept("!"):
            return not self._not()
        if self._accept("("):
            result = self._all()
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
