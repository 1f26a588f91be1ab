"""The binder on the page for authors is the one that `streamkit new --binder toy` makes."""

import re
from pathlib import Path

from click.testing import CliRunner

from streamkit.cli.new import new

PAGE = Path(__file__).parents[2] / "docs" / "writing-a-binder.md"


def test_page_prints_what_the_command_makes(tmp_path: Path) -> None:
    """Each of its Python files with code, word for word; the contract is tested with the command."""
    CliRunner().invoke(new, ["--binder", "toy", "--directory", str(tmp_path)], catch_exceptions=False)
    printed = dict(re.findall(r"```python\n# ([\w./]+)\n(.*?)```", PAGE.read_text(), re.DOTALL))

    made = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.py")}
    assert printed == {name: text for name, text in made.items() if not name.endswith("__init__.py")}


def test_entry_point_is_the_projects(tmp_path: Path) -> None:
    """As in its pyproject.toml."""
    CliRunner().invoke(new, ["--binder", "toy", "--directory", str(tmp_path)], catch_exceptions=False)
    (printed,) = re.findall(r"```toml\n# pyproject.toml\n(.*?)```", PAGE.read_text(), re.DOTALL)

    assert printed in (tmp_path / "pyproject.toml").read_text()
