"""Python snippets on the pages run after the snippets above them."""

import ast
import builtins
import dis
import inspect
import re
from itertools import groupby
from types import CodeType

import pytest

import streamkit
from streamkit import StreamApplication
from streamkit.config.properties_file import parse_properties
from tests.docs.pages import PAGES, Block, blocks_of

NOT_RUN = {"docs/spark.md"}
"""Pages whose code starts Spark: `tests/spark` runs it."""

ORDERS = """
from dataclasses import dataclass

@dataclass
class Order:
    id: str
    amount: float
    customer: str

@dataclass
class Receipt:
    id: str
    amount: float
"""
LOG = "import logging\nlog = logging.getLogger(__name__)\n"
OWN = {
    "docs/customizers.md": LOG,
    "docs/errors.md": f"{ORDERS}{LOG}from datetime import timedelta\nanything_callable = print\nbank = None",
    "docs/functions.md": ORDERS,
    "docs/how-to.md": f"{ORDERS}Price = Order\nproducer = None",
    "docs/idempotence.md": f"{ORDERS}def Booking(*columns: object) -> object: ...",
    "docs/integration.md": "import json\nfood, books, others = map(app.channel, ('food', 'books', 'others'))",
    "docs/kafka.md": "class Rewind: ...",
    "docs/local-store.md": f"{ORDERS}{LOG}",
    "docs/operations.md": "async def note(text: str) -> None: ...",
    "docs/partitions-and-headers.md": f"{ORDERS}VIPS = {{'c-1'}}\nhash_of = hash",
    "docs/payloads.md": f"{ORDERS}class Parcel: ...\nclass Row: ...\nparse = write = print\n"
    "schema_of_version_1 = {'type': 'record', 'name': 'Order', 'fields': []}",
    "docs/testing.md": f"{ORDERS}class FakePrices: ...\nfrom dependency_injector import containers, providers\n"
    "container = containers.DynamicContainer()\ncontainer.prices = providers.Object(None)\n"
    "app = StreamApplication(container=container)\nshop_app = bank_app = app",
    "docs/transactions.md": f"{ORDERS}orders = None",
}
"""What the reader of a page has written himself."""

SETTINGS = {
    "Batches": {"spring.cloud.stream.default.consumer.batch-mode": "true"},
    "The listener class": {
        "spring.cloud.stream.output-bindings": "orders",
        "spring.cloud.stream.rocketmq.bindings.orders.producer.transactional": "true",
        "spring.cloud.stream.rocketmq.bindings.orders.producer.group": "OrderTransactionGroup",
    },
}
"""What the text of a section says of settings."""


def snippets(page: str) -> list[Block]:
    """Return the page's Python blocks that are no files."""
    found = [block for block in blocks_of(page) if block.language == "python" and block.file is None]
    return [] if page in NOT_RUN else found


@pytest.mark.parametrize("page", [page for page in PAGES if snippets(page)])
def test_snippets_run(page: str) -> None:
    """Block after block; the application of each section starts, with the settings of the section."""
    names = {name: getattr(streamkit, name) for name in streamkit.__all__} | {"__name__": page}
    for section, found in groupby(snippets(page), lambda block: block.section):
        names["app"] = StreamApplication(config_location="optional:/none")
        exec(OWN.get(page, ""), names)
        app = names["app"]
        trees = [run(block, names) for block in found]
        with app.test(properties=settings_of(page, section)) as test:
            for tree in trees:
                assert [name for name in attributes(tree, "app") if not hasattr(app, name)] == []
                assert [name for name in attributes(tree, "test") if not hasattr(test, name)] == []


def run(block: Block, names: dict[str, object]) -> ast.Module:
    """Run the block, or only the imports of one that waits for a broker. All its names must be defined."""
    tree = ast.parse(block.text)
    ast.increment_lineno(tree, block.line - 1)
    code = compile(tree, block.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        exec(compile(ast.Module(imports, []), block.page, "exec"), names)
    else:
        exec(code, names)
    known = {*names, *vars(builtins), "__annotations__", *instructions(code, "STORE_NAME")}
    assert instructions(code, "LOAD_NAME", "LOAD_GLOBAL") - known == set(), f"{block.page}:{block.line}"
    return tree


def attributes(tree: ast.AST, root: str) -> list[str]:
    """Return the attributes accessed on this name, function bodies included."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return [node.attr for node in found if isinstance(node.value, ast.Name) and node.value.id == root]


def instructions(code: CodeType, *wanted: str) -> set[str]:
    """Return the names that the code and its functions use in these instructions."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    own = {each.argval for each in dis.get_instructions(code) if each.opname in wanted}
    return own.union(*(instructions(each, *wanted) for each in inner))


def settings_of(page: str, section: str) -> dict[str, str]:
    """Return the section's settings, and a destination for each binding that its code names."""
    reported: dict[str, str] = {}
    for block in blocks_of(page):
        if block.section != section or block.file is not None:
            continue
        if block.language == "python":
            named = re.findall(r'(?:stream_listener|send_to|channel)\("([\w-]+)"', block.text)
            reported |= {f"spring.cloud.stream.bindings.{name}.destination": name for name in named}
        elif block.language == "properties":
            (document,) = parse_properties(block.text, page)
            reported |= {value.key: str(value) for value in document.entries.values()}
    return reported | SETTINGS.get(section, {})
