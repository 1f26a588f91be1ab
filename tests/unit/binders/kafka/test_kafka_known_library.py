"""The supported versions of kafka-python, and the errors and warnings for others."""

import ast
import re
import tomllib
from pathlib import Path

import kafka
import pytest
from packaging.requirements import Requirement

import binders.kafka.repairs
from binders.kafka.repairs import known_library
from binders.kafka.repairs.known_library import NAMES, OLDEST, TESTED_BELOW, require_known_library
from streamkit.errors import ConfigurationError

ROOT = Path(__file__).parents[4]
REPAIRS = Path(binders.kafka.repairs.__path__[0])


def test_installed_version_has_all_names() -> None:
    """The version that the tests run with."""
    assert known_library.missing_names() == []


@pytest.mark.parametrize("version", ["2.3.3", "3.0.9"])
def test_too_old_version_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the supported versions."""
    monkeypatch.setattr(kafka, "__version__", version)
    with pytest.raises(ConfigurationError) as raised:
        require_known_library()
    assert str(raised.value) == (
        f"the Kafka binder does not work with kafka-python {version}: it is too old; "
        "pip install 'kafka-python>=3.0.10,<3.1'"
    )


@pytest.mark.parametrize(
    ("owner", "name", "missing"),
    [
        (kafka.consumer.fetcher.Fetcher, "_append", r"kafka.consumer.fetcher:Fetcher._append\(self, drained"),
        (kafka.KafkaProducer, "__init__", "kafka.producer.kafka:KafkaProducer._transaction_manager"),
    ],
)
def test_version_without_a_required_name_is_refused(
    owner: type, name: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has that name; it may be a method with other parameters or a missing attribute."""
    monkeypatch.setattr(owner, name, lambda self: None)
    monkeypatch.setattr(kafka, "__version__", "3.7.1")
    with pytest.raises(ConfigurationError, match=rf"with kafka-python 3\.7\.1: it lacks {missing}"):
        require_known_library()


def test_newer_version_with_all_names_is_accepted_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It may well work."""
    monkeypatch.setattr(kafka, "__version__", "3.1.0")
    require_known_library()
    assert "kafka-python 3.1.0 is newer than the versions that the Kafka binder is tested with" in caplog.text


def test_pyproject_names_the_supported_versions() -> None:
    """The same as the check at the start."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (found,) = (Requirement(each) for each in extras["kafka"] if each.startswith("kafka-python"))
    assert {str(each) for each in found.specifier} == {
        ">=" + ".".join(map(str, OLDEST)),
        "<" + ".".join(map(str, TESTED_BELOW)),
    }


def private_names(file: Path, *, of_self: bool) -> set[str]:
    """Return the private names that a module uses on objects; those on `self` and `super()` only on request."""
    return {
        each.attr
        for each in ast.walk(ast.parse(file.read_text()))
        if isinstance(each, ast.Attribute)
        and re.match("_[^_]", each.attr)
        and (of_self or ast.unparse(each.value) not in ("self", "cls"))
    }


def test_only_repairs_use_undocumented_names_of_kafka_python() -> None:
    """Elsewhere, names may only be used through the fetcher that repairs provide."""
    found = {file.name: names for file in REPAIRS.parent.glob("*.py") if (names := private_names(file, of_self=False))}
    assert found == {}


@pytest.mark.parametrize("module", sorted(each.stem for each in REPAIRS.glob("*.py")))
def test_each_name_used_by_a_repair_is_checked_at_the_start(module: str) -> None:
    """Except a repair's own names."""
    file = REPAIRS / f"{module}.py"
    own = set(re.findall(r"(?:def |self\.)(_\w+)(?:\(| =|: )", file.read_text()))
    listed = {name for names in NAMES.values() for each in names for name in re.findall(r"[._](_?\w+)", each)}
    dotted = {part for names in NAMES.values() for each in names for part in re.split(r"[.:(]", each)}
    assert private_names(file, of_self=False) - own <= dotted | listed


def test_docstring_lists_every_repair_module() -> None:
    """In the package's docstring."""
    reported = set(re.findall(r"^    (\w+) {2,}", str(binders.kafka.repairs.__doc__), re.MULTILINE)) - {"module"}
    assert reported == {each.stem for each in REPAIRS.glob("*.py")} - {"__init__", "known_library"}
    assert set(NAMES) <= reported
