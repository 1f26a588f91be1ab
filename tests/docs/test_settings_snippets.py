"""Settings on the pages are known and have valid values."""

import re
from pathlib import Path

from streamkit.config.environment import Environment
from streamkit.config.report import by_verdict, report_settings
from streamkit.config.verdict import Verdict
from streamkit.plugins.application_plugins import ApplicationPlugins
from streamkit.running.rehearsal import rehearse_settings
from tests.docs.pages import Block, blocks, each

SUFFIXES = {"properties": ".properties", "yaml": ".yml"}


@each(blocks("properties", "yaml"))
def test_settings_of_blocks_are_valid(block: Block, tmp_path: Path) -> None:
    """None is unknown, without effect, or set twice; those below a comment `# Refused:` are refused."""
    (tmp_path / f"application{SUFFIXES[block.language]}").write_text(block.text)
    # The page on Kafka begins with the choice of the binder; its other blocks leave that out.
    leaves_it_out = block.page.endswith("kafka.md") and "default-binder" not in block.text
    defaults = {"spring.cloud.stream.default-binder": "kafka"} if leaves_it_out else None
    environment = Environment.load(directory=tmp_path, variables={"PASSWORD": "secret"}, defaults=defaults)
    problems = rehearse_settings(environment, ApplicationPlugins()).problems
    rows = report_settings(environment, problems)
    refused = re.findall(r"# Refused:.*\n([^=\n]+)=", block.text)
    assert [row.key for row in by_verdict(rows, Verdict.WRONG)] == refused
    assert [row for row in rows if row.verdict not in (Verdict.HONOURED, Verdict.WRONG)] == []
    assert by_verdict(rows, Verdict.HONOURED)
