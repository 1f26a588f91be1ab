"""The settings that the pages show: each is known, and has the kind of value it must have."""

from pathlib import Path

from streamkit.config.environment import Environment
from streamkit.config.report import Verdict, by_verdict, report_settings
from streamkit.plugins.application_plugins import ApplicationPlugins
from tests.docs.pages import Block, blocks, each

SUFFIXES = {"properties": ".properties", "yaml": ".yml"}


@each(blocks("properties", "yaml"))
def test_no_setting_of_a_block_is_wrong_or_foreign(block: Block, tmp_path: Path) -> None:
    """Nor without effect, nor set twice: each does what it says."""
    (tmp_path / f"application{SUFFIXES[block.language]}").write_text(block.text)
    environment = Environment.load(directory=tmp_path, variables={"PASSWORD": "secret"})
    rows = report_settings(environment, ApplicationPlugins().binder_types())
    assert by_verdict(rows, Verdict.HONOURED) == rows != []
