"""Regular expressions of expressions: Java's syntax, matched by RE2 in time linear in the text.

RE2 has no back references, no look-around and no possessive quantifiers, because they cannot be matched in linear time;
they are refused. Syntax that RE2 reads differently than Java is refused too: a pattern means the same in both, or is an
error. Small differences of character classes remain: `.` stands for every character but a line feed (Java
excludes other line ends too), and `(?i)` knows all of Unicode.
"""

import re
from functools import lru_cache, partial
from typing import Any, Final

from streamkit.expression.limits import MAX_PATTERN_LENGTH, PATTERN_MEMORY, PATTERNS_KEPT

__all__ = ["Pattern", "PatternError", "compile_pattern"]

# RE2's fast automaton reads each character once. If it would have too many states, RE2 runs all instructions in
# parallel, with 10 ns for each instruction and character; so a unit of work is eight instructions.
_INSTRUCTIONS: Final = 8
# The cost of compiling, in characters of a matched text.
_COMPILATION: Final = 64

# Outside of a class: quoted text, escapes, the beginning of a class, groups with flags.
_OUTSIDE: Final = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?|\(\?[A-Za-z-]*[:)]", re.DOTALL)
_INSIDE: Final = re.compile(r"\\.|\[|&&|\]", re.DOTALL)
_ESCAPES: Final = {
    **dict.fromkeys("123456789", "back references"),
    "0": "octal escapes (write \\x41)",
    "v": "\\v, Java's class of vertical white space (write [\\n\\x0B\\f\\r])",
    "C": "\\C",
}


class PatternError(ValueError):
    """A regular expression is malformed, too large, or uses a feature that RE2 does not have."""


class Pattern:
    """A compiled regular expression.

    Attributes:
        source: Its text.
    """

    __slots__ = ("_match", "_weight", "source")

    def __init__(self, source: str, compiled: Any, anchor: Any) -> None:
        self.source = source
        self._match = partial(compiled.Match, anchor)
        self._weight: int = 1 + compiled.ProgramSize() // _INSTRUCTIONS

    def matches(self, text: str) -> bool:
        """Return whether the whole of ``text`` matches, as Java's `String.matches` does."""
        try:
            data = text.encode()
        except UnicodeEncodeError:  # a lone surrogate, which is not a character
            data = text.encode("utf-8", "replace")
        return bool(self._match(data, 0, len(data))[0][0] == 0)

    def cost(self, text: str) -> int:
        """Return the units of work that compiling the pattern and matching ``text`` may take."""
        return self._weight * (len(text) + _COMPILATION)

    def __repr__(self) -> str:
        return f"Pattern({self.source!r})"


@lru_cache(maxsize=PATTERNS_KEPT)
def compile_pattern(source: str) -> Pattern:
    """Return the compiled regular expression.

    Raises:
        PatternError: The pattern is malformed, too large, or uses a feature that RE2 does not have.
    """
    if len(source) > MAX_PATTERN_LENGTH:
        raise PatternError(f"the regular expression has {len(source):,} characters, more than {MAX_PATTERN_LENGTH:,}")
    _check_syntax(source)
    # The extension itself: the Python module around it takes twice the time for a match, and caches 128 more patterns.
    from re2 import _re2  # pyright: ignore[reportAttributeAccessIssue] - re2 has no types

    options = _re2.RE2.Options()
    options.max_mem = PATTERN_MEMORY
    options.never_capture = True  # without groups only the fast automaton runs
    options.log_errors = False  # errors are raised instead
    compiled = _re2.RE2(source.encode("utf-8", "replace"), options)
    if compiled.ok():
        return Pattern(source, compiled, _re2.RE2.Anchor.ANCHOR_BOTH)
    raise PatternError(
        f"not a regular expression of RE2, which matches in linear time: {compiled.error().decode()}; look-around, "
        "back "
        "references and possessive quantifiers are not supported"
    )


def _check_syntax(source: str) -> None:
    """Refuse syntax that RE2 reads differently than Java.

    Raises:
        PatternError: The pattern has such a part.
    """
    position = 0
    inside = False
    while found := (_INSIDE if inside else _OUTSIDE).search(source, position):
        part = found[0]
        position = found.end()
        if part.startswith("\\"):
            if part[1] in _ESCAPES:
                raise _refusal(_ESCAPES[part[1]], source, found.start())
        elif part.startswith("("):
            if "U" in part:
                raise _refusal("the flag U", source, found.start())
        elif not inside:
            inside = True
        elif part == "]":
            inside = False
        else:
            raise _refusal("nested character classes (write \\[ for a bracket)", source, found.start())


def _refusal(what: str, source: str, position: int) -> PatternError:
    return PatternError(f"{what} are not supported, at {position} of {source!r}")
