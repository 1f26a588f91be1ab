"""docs/settings.md: its tables are those of the models, and no documented key of Spring's is missing."""

import re
from pathlib import Path

from streamkit.config.application_properties import GROUPS
from streamkit.config.reference import MARKER, documented, reference_tables
from streamkit.config.settings import StreamSettings
from streamkit.plugins.application_plugins import ApplicationPlugins

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_tables_are_those_of_the_models() -> None:
    """When this fails, run `streamkit config reference --update docs/settings.md`."""
    _, _, tables = PAGE.read_text().partition(MARKER)
    assert tables.strip() == reference_tables(ApplicationPlugins().binder_types()).strip()


def test_every_honoured_setting_says_what_it_does() -> None:
    """A row without a text would be a riddle."""
    types = ApplicationPlugins().binder_types()
    models = [StreamSettings, *(group.model for group in GROUPS)]
    for name in types.names:
        models += [*types.extended_models(name), *types.settings_models(name).values()]
    riddles = [
        f"{model.__name__}: {row.key}"
        for model in models
        for row in documented(model)
        if row.status.startswith("honoured") and not row.text
    ]
    assert riddles == []


def test_the_page_is_a_table_a_reader_can_follow() -> None:
    """Each row has its five cells, whatever stands in them."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert len(rows) > 150
    assert {len(re.split(r"(?<!\\)\|", row)) for row in rows} == {7}
