"""The limits of expressions, the same for expressions of settings, of code and of messages.

Each part of an expression is evaluated at most once, except within selections and projections: these are charged for
each item, by the number of their tokens. The limits bound the number of parts (`MAX_LENGTH`, `MAX_TOKENS`, `MAX_DEPTH`)
and the data that they read and make (`MAX_WORK`, `MAX_NUMBER_BITS`).
"""

from typing import Final

MAX_LENGTH: Final = 10_000
"""Characters of an expression, as in Spring. A longer text is not tokenized."""

MAX_TOKENS: Final = 500
"""Tokens of an expression. The longest chain of operators is half of that, and each of them is a Python frame during
the evaluation; 250 frames leave the caller most of Python's 1,000."""

MAX_DEPTH: Final = 50
"""Nested brackets, operands and choices. Each level takes five Python frames in the parser."""

MAX_WORK: Final = 16 * 1024 * 1024
"""Units of work that one evaluation may take: a unit is a character that is read or made. Four times
RocketMQ's largest message (`maxMessageSize`, 4 MiB). A unit usually takes 1 ns, and at most 80 ns, if RE2 has too many
states for its fast automaton. So an evaluation takes at most about a second, and 64 MiB."""

ITEM_WORK: Final = 16
"""Units of work for an item of a list or map, which Python code visits: about a microsecond."""

MAX_NUMBER_BITS: Final = 1024
"""Bits of an integer that an expression computes: larger integers are beyond the floating-point numbers."""

MAX_EXPONENT: Final = 1000
"""The largest exponent of `^`."""

MAX_PATTERN_LENGTH: Final = 1000
"""Characters of a regular expression, as in Spring."""

PATTERN_MEMORY: Final = 1024 * 1024
"""Bytes that RE2 may use for a compiled regular expression and the states of its automaton; RE2's own default is eight
times that. Enough for `\\p{L}{1,50}`, fifty of Unicode's letters."""

PATTERNS_KEPT: Final = 128
"""Compiled regular expressions in the cache: some kilobytes each; together 128 MiB if a sender is hostile."""
