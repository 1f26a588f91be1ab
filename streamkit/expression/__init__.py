"""Expressions over messages: the subset of Spring's expression language that settings need.

    headers['type'] == 'refund' && payload.amount > 100        a condition
    payload.customer.id                                        a partition key
    payload.name?.toUpperCase() ?: 'NOBODY'

The language has `payload` and `headers` with properties, keys and indexes; literals, and lists in braces;
`== != < <= > >=` and `eq ne lt le gt ge`; `&& || !` and `and or not`; `+ - * / % ^` and `div mod`; `? :`,
`?:` and `?.`; `matches`, `between` and `instanceof T(…)`; selections `.?[…]`, `.^[…]`, `.$[…]` and projections `.![…]`
of lists and maps; the methods of `streamkit.expression.methods`. Arithmetic of whole numbers is Java's. Nothing else is
reachable: no constructors, no beans, no assignments, no methods or private names of Python objects, and types only of
`instanceof`.

If the payload is still bytes, an expression that reads a part of it parses it as JSON.

An expression and its data may come from a stranger's message. So every evaluation is bounded
(`streamkit.expression.limits`), and patterns match in linear time (`streamkit.expression.patterns`).

The two names are imported on first access (PEP 562): bindings need Java's hash, and few have an expression.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamkit.expression.expression import Expression as Expression
    from streamkit.expression.expression import compile_expression as compile_expression

__all__ = ["Expression", "compile_expression"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module("streamkit.expression.expression"), name)
    globals()[name] = value
    return value
