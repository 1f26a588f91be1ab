"""docs/protocol.md lists every request code, the server that serves it, and an existing test."""

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
from rocket_broker.tables.system_names import INTERNAL_TOPICS, PREDEFINED_GROUPS, REPORT_TOPICS, SHARED_TOPICS
from rocket_remoting import MemoryTransport
from rocket_remoting.wire.codes import RequestCode, request_name

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "protocol.md"
ROW = re.compile(r"\| (\d+) \| ([A-Z0-9_]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|")

PROOF = re.compile(r"`(tests/[a-z_/]+\.py::\w+)`")
KINDS = {
    "internal": INTERNAL_TOPICS,
    "reports": REPORT_TOPICS,
    "shared": SHARED_TOPICS,
    "predefined": PREDEFINED_GROUPS,
}
"""The first words of the rows that list the broker's own topics and groups."""


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
    """Return the codes that a server serves according to the page."""
    return {row.code for row in rows() if by in row.served_by.split(", ")}


def missing(proofs: list[str]) -> list[str]:
    """Return those of the tests, named by file and function, that do not exist."""
    functions: dict[str, set[str]] = {}
    for path in {proof.partition("::")[0] for proof in proofs}:
        tree = ast.parse((ROOT / path).read_text())
        functions[path] = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return [proof for proof in proofs if proof.partition("::")[2] not in functions[proof.partition("::")[0]]]


def names(codes: set[int]) -> list[str]:
    return [request_name(code) for code in sorted(codes)]


def test_every_code_has_one_row() -> None:
    """In numeric order with Apache's names, and our own codes."""
    table = rows()
    assert [row.code for row in table] == sorted({row.code for row in table})
    apaches = [(row.code, row.name) for row in table if row.known_to != "here only"]
    assert apaches == sorted((int(code), code.name) for code in RequestCode)


def test_page_lists_the_brokers_requests() -> None:
    """Give a new request of the broker its row, and the test that sends it."""

    async def table() -> set[int]:
        async with EmbeddedBroker(transport=MemoryTransport()) as embedded:
            return set(map(int, embedded.broker.requests.table))

    assert names(served("broker")) == names(asyncio.run(table()))


def test_page_lists_the_name_servers_requests(tmp_path: Path) -> None:
    """Likewise."""
    routes = RouteTable(lambda: 0.0)
    processor = NameServerProcessor(NameServerSettings(), routes, KVConfig(tmp_path / "kvConfig.json"))
    assert names(served("name server")) == names(set(map(int, processor.table)))


def test_each_served_request_names_an_existing_test() -> None:
    """By its file and function."""
    proofs = [row.proof.strip("`") for row in rows() if row.served_by != "not served"]
    assert all("::" in proof for proof in proofs)
    assert missing(proofs) == []


def test_each_test_named_on_the_page_exists() -> None:
    """In the tables of rules too."""
    assert missing(PROOF.findall(PAGE.read_text())) == []


def test_page_lists_the_system_topics_and_groups() -> None:
    """Each name in the row of its kind."""
    row_of = {
        kind: line
        for line in reversed(PAGE.read_text().splitlines())
        for kind in KINDS
        if line.startswith(f"| *{kind}*")
    }
    for kind, names_of_kind in KINDS.items():
        assert [name for name in names_of_kind if f"`{name}`" not in row_of[kind]] == []


def test_each_unserved_request_has_a_reason() -> None:
    """In words, not by a test."""
    unserved = [row for row in rows() if row.served_by == "not served"]
    assert len(unserved) > 50
    assert all(len(row.proof) > 15 and "::" not in row.proof for row in unserved)
