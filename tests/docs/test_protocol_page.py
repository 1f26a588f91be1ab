"""docs/protocol.md: every request code, who serves it, and a test that is there."""

import ast
import asyncio
import re
from pathlib import Path
from typing import NamedTuple

from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.namesrv.kv_config import KVConfig
from rocket_broker.namesrv.processor import NameServerProcessor
from rocket_broker.namesrv.route_table import RouteTable
from rocket_broker.namesrv.settings import NameServerSettings
from rocket_remoting import MemoryTransport
from rocket_remoting.codes import RequestCode, request_name

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "protocol.md"
ROW = re.compile(r"\| (\d+) \| ([A-Z0-9_]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|")


class Row(NamedTuple):
    """One line of the table."""

    code: int
    name: str
    known_to: str
    served_by: str
    proof: str


def rows() -> list[Row]:
    """Return the table."""
    found = (ROW.fullmatch(line) for line in PAGE.read_text().splitlines())
    return [Row(int(m[1]), m[2], m[3], m[4], m[5].strip()) for m in found if m is not None]


def served(by: str) -> set[int]:
    """Return the codes that the page says are served by one."""
    return {row.code for row in rows() if by in row.served_by.split(", ")}


def names(codes: set[int]) -> list[str]:
    return [request_name(code) for code in sorted(codes)]


def test_every_code_has_one_row() -> None:
    """In the order of their numbers, under Apache's names; those of our own beside them."""
    table = rows()
    assert [row.code for row in table] == sorted({row.code for row in table})
    apaches = [(row.code, row.name) for row in table if row.known_to != "here only"]
    assert apaches == sorted((int(code), code.name) for code in RequestCode)


def test_the_broker_serves_what_the_page_says() -> None:
    """Give a new request of the broker its row, and the test that sends it."""

    async def table() -> set[int]:
        async with EmbeddedBroker(transport=MemoryTransport()) as embedded:
            return set(map(int, embedded.broker.requests.table))

    assert names(served("broker")) == names(asyncio.run(table()))


def test_the_name_server_serves_what_the_page_says(tmp_path: Path) -> None:
    """Likewise."""
    routes = RouteTable(lambda: 0.0)
    processor = NameServerProcessor(NameServerSettings(), routes, KVConfig(tmp_path / "kvConfig.json"))
    assert names(served("name server")) == names(set(map(int, processor.handlers)))


def test_each_served_request_names_a_test_that_is_there() -> None:
    """By its file and function."""
    functions: dict[str, set[str]] = {}
    missing = []
    for row in rows():
        if row.served_by == "not served":
            continue
        path, _, function = row.proof.strip("`").partition("::")
        if path not in functions:
            tree = ast.parse((ROOT / path).read_text())
            functions[path] = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        if function not in functions[path]:
            missing.append(f"{row.name}: {row.proof}")
    assert missing == []


def test_each_other_request_has_a_reason() -> None:
    """In words, not by a test."""
    unserved = [row for row in rows() if row.served_by == "not served"]
    assert len(unserved) > 50
    assert all(len(row.proof) > 15 and "::" not in row.proof for row in unserved)
