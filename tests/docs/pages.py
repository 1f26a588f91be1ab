"""The documentation pages and their code blocks."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_FILE = re.compile(r"(?:#|//|<!--) ([\w./-]+\.\w+)")


class Block(NamedTuple):
    """A block of code.

    Attributes:
        page: The path of its page.
        section: The heading above it.
        line: Its first line there.
        language: What it is said to be.
        text: Its lines.
    """

    page: str
    section: str
    line: int
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """Return the file name in its first line, if it is a whole file."""
        named = _FILE.match(self.text)
        return named[1] if named else None


def blocks(*languages: str) -> list[Block]:
    """Return all blocks of these languages, page by page."""
    return [block for page in PAGES for block in blocks_of(page) if block.language in languages]


def blocks_of(page: str) -> Iterator[Block]:
    """Return the blocks of one page in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for found in _BLOCK.finditer(text):
        headings = _HEADING.findall(text, 0, found.start())
        yield Block(page, headings[-1], text.count("\n", 0, found.start()) + 2, found[1], found[2])


def prose_of(page: str) -> str:
    """Return the page without its blocks."""
    return _BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8"))


def each(items: list[Block]) -> pytest.MarkDecorator:
    """Return a test parameter per block, with page and line as its id."""
    return pytest.mark.parametrize("block", items, ids=[f"{block.page}:{block.line}" for block in items])


def write_files(page: str, directory: Path) -> list[str]:
    """Write the page's Python and properties files, and return their names."""
    files = [block for block in blocks_of(page) if block.file and block.language in ("python", "properties")]
    for block in files:
        assert block.file is not None
        (directory / block.file).write_text(block.text)
    return sorted(str(block.file) for block in files)
