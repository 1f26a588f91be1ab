"""The reference page of all settings, generated from the models: a Markdown table for each group."""

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from enum import Enum
from functools import cache
from itertools import pairwise

import msgspec

from streamkit.config.application_properties import GROUPS
from streamkit.config.explain import setting_text
from streamkit.config.judgement import KnownTypes
from streamkit.config.relaxed import kebab
from streamkit.config.setting_limits import Accepted, limit_of
from streamkit.config.settings import PREFIX, StreamSettings
from streamkit.config.settings_model import package_of
from streamkit.config.shape import AnyModel, Field, Leaf, Listing, Section, Shape, Table, section_of

MARKER = "<!-- What follows is written by `streamkit config reference --update`: change the models instead. -->"
"""The line of a Markdown file below which the generated tables begin."""

_HEADER = "| setting | type | default | what it does | here |\n|---|---|---|---|---|"
_TYPES: Mapping[object, str] = {
    bool: "boolean",
    int: "int",
    float: "number",
    str: "text",
    timedelta: "duration",
}


class DocumentedSetting(msgspec.Struct, frozen=True):
    """A row of a table.

    Attributes:
        key: The key, below the prefix of the group.
        aliases: Other names of the last segment of the key.
        type: The type of the value, such as `int` or `duration`.
        default: The default value.
        text: What the setting does.
        status: `honoured`, or that the setting is ignored or refused, and why.
    """

    key: str
    aliases: tuple[str, ...]
    type: str
    default: str
    text: str
    status: str

    def __str__(self) -> str:
        names = f"`{self.key}`" + "".join(f", `{alias}`" for alias in self.aliases)
        default = f"`{self.default}`" if self.default else ""
        return "| " + " | ".join(map(_cell, (names, self.type, default, self.text, self.status))) + " |"


def reference_tables(types: KnownTypes) -> str:
    """Return the tables of all settings, including those of the installed binder types."""
    tables = [reference_table("The application", PREFIX, StreamSettings)]
    tables += [reference_table(group.title, group.prefix, group.model) for group in GROUPS]
    for type_ in types.names:
        consumer, producer = types.extended_models(type_)
        for prefix, model in types.settings_models(type_).items():
            tables.append(reference_table(f"Binder `{type_}`: `{prefix}`", prefix, model))
        below = f"{PREFIX}.{type_}.bindings.<name>"
        tables.append(reference_table(f"Binder `{type_}`: consumers", f"{below}.consumer", consumer))
        tables.append(reference_table(f"Binder `{type_}`: producers", f"{below}.producer", producer))
    return "\n".join(tables)


def reference_table(title: str, prefix: str, model: AnyModel) -> str:
    """Return a section of the page: a heading, the prefix, and a table with the settings of a model."""
    rows = "\n".join(map(str, documented(model)))
    return f"## {title}\n\nBelow `{prefix}`:\n\n{_HEADER}\n{rows}\n"


def documented(model: AnyModel) -> Iterator[DocumentedSetting]:
    """Yield the settings of a model in its order, groups flattened; a group of a table that occurs again is one row."""
    yield from _rows(section_of(model), (), model(), set())


def _rows(
    section: Section, path: tuple[str, ...], defaults: object, seen: set[AnyModel]
) -> Iterator[DocumentedSetting]:
    texts = _texts(section.model)
    for known in dict.fromkeys(section.fields.values()):
        text = " ".join((known.declared.description or texts.get(known.name, "")).split())
        place = (*path, kebab(known.name))
        default = getattr(defaults, known.name, None)
        below = _section_below(known.shape)
        if below is None:
            yield _row(known, place, default, text)
            continue
        if isinstance(known.shape, Table):
            place, default = (*place, "<name>"), below.model()
        if below.model in seen:
            yield DocumentedSetting(".".join((*place, "*")), (), "", "", text, "as above")
            continue
        if isinstance(known.shape, Table):
            seen.add(below.model)
        yield from _rows(below, place, default, seen)


def _section_below(shape: Shape) -> Section | None:
    if isinstance(shape, Table):
        shape = shape.value
    return shape if isinstance(shape, Section) else None


def _texts(model: AnyModel) -> dict[str, str]:
    """Return the docstrings below the fields of a model and of its base classes.

    No application needs them, so they are not collected when the class is made.
    """
    texts: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if inspect.get_annotations(each) and package_of(each) != "pydantic":
            texts |= _texts_in_module(each.__module__).get(each.__qualname__, {})
    return texts


@cache
def _texts_in_module(name: str) -> Mapping[str, Mapping[str, str]]:
    """Return the docstrings below fields, by the qualified names of a module's classes; none for one without a file.

    `inspect.getsource` would parse the whole module again for each class.
    """
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (KeyError, OSError, TypeError):
        return {}
    return {qualified: dict(_texts_below_fields(each)) for qualified, each in _classes_in(tree, "")}


def _classes_in(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.ClassDef(name=name):
                yield f"{prefix}{name}", child
                yield from _classes_in(child, f"{prefix}{name}.")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield from _classes_in(child, f"{prefix}{name}.<locals>.")
            case _:
                yield from _classes_in(child, prefix)


def _texts_below_fields(definition: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, below in pairwise(definition.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, text


def _row(known: Field, place: tuple[str, ...], default: object, text: str) -> DocumentedSetting:
    key = ".".join(place) + (".<key>" if isinstance(known.shape, Table) else "")
    aliases = tuple(
        dict.fromkeys(spelling for alias in known.declared.aliases if (spelling := kebab(alias)) != kebab(known.name))
    )
    return DocumentedSetting(
        key, aliases, _type(known.shape), setting_text(default), text, _status(known.declared.notes)
    )


def _status(notes: Iterable[object]) -> str:
    limit = limit_of(notes)
    if limit is None:
        return "honoured"
    what = "no effect" if isinstance(limit, Accepted) else "rejected"
    values = "".join(f" `{setting_text(value)}`" for value in limit.only)
    return f"{what}{f' as{values}' if values else ''}: {limit.reason}"


def _type(shape: Shape) -> str:
    match shape:
        case Listing():
            return "list" if shape.separator == "," else f"list, by `{shape.separator}`"
        case Table():
            return "map"
        case Leaf(type=kind) if isinstance(kind, type) and issubclass(kind, Enum):
            return ", ".join(f"`{member.value}`" for member in kind)
        case Leaf():
            return next((word for type_, word in _TYPES.items() if _is(shape.type, type_)), "text")
        case _:
            return ""


def _is(annotation: object, type_: object) -> bool:
    """Return whether an annotation is a type or an `Annotated` of that type."""
    return annotation is type_ or getattr(annotation, "__origin__", None) is type_


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;") if "`" not in text else text.replace("|", "\\|")
