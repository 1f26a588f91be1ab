"""Settings on the pages are known and have valid values."""

from pathlib import Path

from streamkit.config.environment import Environment
from streamkit.config.report import Verdict, by_verdict, report_settings
from streamkit.plugins.application_plugins import ApplicationPlugins
from tests.docs.pages import Block, blocks, each

SUFFIXES = {"properties": ".properties", "yaml": ".yml"}


@each(blocks("properties", "yaml"))
def test_settings_of_blocks_are_valid(block: Block, tmp_path: Path) -> None:
    """None is unknown, without effect, or set twice."""
    (tmp_path / f"application{SUFFIXES[block.language]}").write_text(block.text)
    environment = Environment.load(directory=tmp_path, variables={"PASSWORD": "secret"})
    rows = report_settings(environment, ApplicationPlugins().binder_types())
    assert by_verdict(rows, Verdict.HONOURED) == rows != []
