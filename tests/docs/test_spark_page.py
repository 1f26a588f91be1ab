"""docs/spark.md: its code, as far as it can be checked without Spark; `tests/spark` runs similar code."""

import ast
import re

import pytest

from pyspark_rocketmq.errors import OptionError
from pyspark_rocketmq.options import sink_options, source_options, stream_options, stream_sink_options
from tests.docs.pages import Block, blocks_of, each, prose_of

PAGE = "docs/spark.md"
BLOCKS = [block for block in blocks_of(PAGE) if block.language == "python"]
CHAIN = re.compile(r'\.(read|write)Stream\.format\("rocketmq"\)((?:\s*\.option\("\w+", "[^"]*"\))+)')
STREAMS = {"read": stream_options, "write": stream_sink_options}
ENOUGH = {"nameServer": "127.0.0.1:9876", "topic": "orders"}


@each(BLOCKS)
def test_python_blocks_compile_and_their_imports_exist(block: Block) -> None:
    """Only the imports are run."""
    tree = ast.parse(block.text)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(imports, []), block.page, "exec"), {})


def test_options_in_code_are_valid() -> None:
    """For their format."""
    chains = [chain for block in BLOCKS for chain in CHAIN.findall(block.text)]
    assert {direction for direction, _ in chains} == {"read", "write"}
    for direction, options in chains:
        STREAMS[direction](dict(re.findall(r'\("(\w+)", "([^"]*)"\)', options)))


@pytest.mark.parametrize("option", re.findall(r"`([a-z]+[A-Z]\w+=[\w-]+)`", prose_of(PAGE)))
def test_options_in_the_text_are_known(option: str) -> None:
    """To the source or the sink, with that value."""
    key, _, value = option.partition("=")
    for read in (source_options, sink_options):
        try:
            read(ENOUGH | {key: value})
        except OptionError as error:
            reported = str(error)
        else:
            return
    pytest.fail(reported)
