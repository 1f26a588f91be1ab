"""Names that pages mention exist: pages, files, modules, methods, settings."""

import inspect
import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec

import pytest

from rocket_broker.namesrv.settings import NameServerSettings
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_client import Admin
from streamkit import StreamApplication
from streamkit.config.reference import MARKER, reference_tables
from streamkit.messaging.transaction import ChannelTransaction
from streamkit.plugins.application_plugins import ApplicationPlugins
from streamkit.testing.harness import Harness
from tests.docs.pages import PAGES, ROOT, blocks_of, prose_of

OWN = re.compile(r"(streamkit|binders|rocket_\w+|pyspark_\w+)(\.\w+)+")
NO_MODULES = (
    *("streamkit.binders", "streamkit.commands", "streamkit.messages", "streamkit.queries"),
    *("streamkit.inbox", "streamkit.local-store", "streamkit.outbox"),
)
"""Groups of entry points, what metrics are called, and settings."""

FULL_KEY = re.compile(r"((?:spring|management)\.[^=\s]+)(=.*)?")
PART_OF_KEY = re.compile(r"(?!.*\.py$)((?:consumer|producer|binder)\.[a-z-]+(?:\.[a-z-]+)*)(=.*)?")
ELSEWHERE = {
    "docs/settings.md": "tells how keys are written",
    "docs/features.md": "has Spring's own, and tests",
    "docs/spark.md": "has options of Spark's, see test_spark_page.py",
}
"""Pages whose settings are not looked at here."""

HEADERS = {"spring.cloud.stream.sendto.destination"}
SERVER_KEY = re.compile(r"([a-z]+[A-Z]\w+)=(?!>).+")
OBJECTS = {"app": StreamApplication, "test": Harness, "admin": Admin, "tx": ChannelTransaction}


@pytest.fixture(params=PAGES)
def page(request: pytest.FixtureRequest) -> str:
    """Return each page."""
    return str(request.param)


def codes(page: str) -> set[str]:
    """Return the page's text between backticks; a generated table needs no test."""
    written = prose_of(page).partition(MARKER)[0]
    return {" ".join(text.split()) for text in re.findall(r"`([^`]+)`", written)}


def anchors(page: str) -> set[str]:
    """Return the anchors of the page's headings."""
    headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@cache
def setting_keys() -> frozenset[str]:
    """Return all setting keys of docs/settings.md."""
    keys = set()
    for section in reference_tables(ApplicationPlugins().binder_types()).split("\n## "):
        (prefix,) = re.findall(r"^Below `(.*)`:$", section, re.MULTILINE)
        for names in re.findall(r"^\| ((?:`[^`]*`(?:, )?)+) \|", section, re.MULTILINE):
            first, *others = re.findall(r"`([^`]*)`", names)
            keys |= {f"{prefix}.{first}", *(f"{prefix}.{first.rpartition('.')[0]}.{each}" for each in others)}
    return frozenset(key.replace("..", ".") for key in keys)


def test_every_block_has_a_language(page: str) -> None:
    """So that the tests of each language find it."""
    assert (ROOT / page).read_text().count("```") == 2 * len([*blocks_of(page)])


def test_links_have_a_target(page: str) -> None:
    """A file of the project and a heading in it."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose_of(page)):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(str(file.resolve().relative_to(ROOT))), target


def test_modules_and_paths_exist(page: str) -> None:
    """Those of the project's packages and folders."""
    missing = []
    for code in codes(page):
        name = code.partition("(")[0]
        if OWN.fullmatch(name) and not name.startswith(NO_MODULES) and not exists(name):
            missing.append(name)
        if re.fullmatch(r"\w+(/[\w.-]+)+", code) and (ROOT / code.partition("/")[0]).is_dir():
            missing += [] if (ROOT / code).exists() else [code]
    assert missing == []


def exists(name: str) -> bool:
    """Return whether there is such a module or such a name in one."""
    module, _, attribute = name.rpartition(".")
    try:
        if find_spec(name) is not None:
            return True
    except ModuleNotFoundError:  # it is no module, nor is what it is in
        pass
    return hasattr(import_module(module), attribute)


def test_methods_exist(page: str) -> None:
    """Those of `app`, `test`, `admin`, `tx` on pages."""
    for code in codes(page):
        for name, attribute in re.findall(r"(?<![\w.])(\w+)\.([a-z_]+)\b", code):
            if name in OBJECTS:
                assert attribute in attributes(OBJECTS[name]), code


@cache
def attributes(type_: type) -> frozenset[str]:
    """Return the attributes of the class and of its instances."""
    return frozenset([*dir(type_), *re.findall(r"self\.(\w+)", inspect.getsource(type_))])


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE])
def test_settings_are_known(page: str) -> None:
    """Whole keys, their last parts, and the keys of the servers' files."""
    keys = setting_keys() | HEADERS
    servers = {row.key for settings in (BrokerSettings(), NameServerSettings()) for row in settings.rows()}
    unknown = []
    for code in codes(page):
        if whole := FULL_KEY.fullmatch(code):
            key = re.sub(r"<\w+>", "<name>", whole[1]).removesuffix(".*")
            known = any(each == key or each.startswith(f"{key}.") for each in keys)
        elif part := PART_OF_KEY.fullmatch(code):
            known = any(f".{part[1]}." in f"{each}." for each in keys)
        elif server := SERVER_KEY.fullmatch(code):
            known = server[1] in servers
        else:
            continue
        if not known:
            unknown.append(code)
    assert unknown == []
