"""docs/testing.md: its web application works, and it names every setting that the binder in memory does not imitate."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from streamkit.config.relaxed import kebab
from streamkit.config.setting_limits import NotInMemory
from streamkit.config.shape import AnyModel, Section, section_of
from streamkit.plugins.application_plugins import ApplicationPlugins
from tests.docs.pages import write_files

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


def test_the_tests_of_the_web_application_pass(tmp_path: Path) -> None:
    """With the test client, and on the loop of an async test."""
    assert write_files("docs/testing.md", tmp_path) == ["test_web.py", "web.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def not_imitated(model: AnyModel) -> Iterator[str]:
    """Yield the names of a model's settings that have the mark, also of nested ones."""
    for field in section_of(model).fields.values():
        if any(isinstance(note, NotInMemory) for note in field.declared.notes):
            yield kebab(field.name)
        if isinstance(field.shape, Section):
            yield from not_imitated(field.shape.model)


def test_every_setting_that_memory_does_not_imitate_is_on_the_page() -> None:
    """A reader finds the reason there before a test deceives him."""
    types = ApplicationPlugins().binder_types()
    models: list[AnyModel] = []
    for name in types.names:
        models += [*types.extended_models(name), *types.settings_models(name).values()]
    named = {name for model in models for name in not_imitated(model)}
    page = PAGE.read_text()
    assert len(named) > 10
    assert [name for name in sorted(named) if name not in page] == []
