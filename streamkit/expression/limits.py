"""The bounds of expressions, which hold wherever an expression comes from: a setting, the code, a message.

An expression has no loops, so each part of it is evaluated at most once. What remains is how many parts there are
(`MAX_LENGTH`, `MAX_TOKENS`, `MAX_DEPTH`) and how much data they read and make (`MAX_WORK`, `MAX_NUMBER_BITS`).
"""

from typing import Final

MAX_LENGTH: Final = 10_000
"""Characters of an expression, as in Spring. A longer text is not even cut into tokens."""

MAX_TOKENS: Final = 500
"""Tokens of an expression. The longest chain of operators is half of that, and each of them is a Python frame during
the evaluation; 250 frames leave the caller most of Python's 1,000."""

MAX_DEPTH: Final = 50
"""Brackets, operands and choices within each other. Each level takes five Python frames in the parser."""

MAX_WORK: Final = 16 * 1024 * 1024
"""Units of work that the value of an expression may take: a unit is a character that is read or made. Four times
RocketMQ's largest message (`maxMessageSize`, 4 MiB). A unit takes 1 ns mostly and 80 ns at most, where RE2 has too many
states for its fast automaton; so a value takes about a second at most, and 64 MiB."""

ITEM_WORK: Final = 16
"""Units of work for an item of a list or map, which Python code looks at: about a microsecond."""

MAX_NUMBER_BITS: Final = 1024
"""Bits of a whole number that an expression makes: greater ones have no floating-point number beside them."""

MAX_EXPONENT: Final = 1000
"""The greatest exponent of `^`."""

MAX_PATTERN_LENGTH: Final = 1000
"""Characters of a regular expression, as in Spring."""

PATTERN_MEMORY: Final = 1024 * 1024
"""Bytes that RE2 may use for a compiled regular expression and the states of its automaton; RE2's own default is eight
times that. Enough for `\\p{L}{1,50}`, fifty of Unicode's letters."""

PATTERNS_KEPT: Final = 128
"""Compiled regular expressions that are kept for their next use: 128 MiB of them if somebody means harm, else some
kilobytes each."""
