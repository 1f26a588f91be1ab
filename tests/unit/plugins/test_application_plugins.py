"""Plugins: discovery, order, hooks, and errors that name them."""

import os
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse

from binders.inmemory.binder import InMemoryBinder
from binders.inmemory.plugin import InMemoryBinderType
from streamkit.application import StreamApplication
from streamkit.binder.binder import Binder, BinderContext
from streamkit.binder.binder_type import BinderType
from streamkit.config.environment import Environment
from streamkit.config.source import PropertySource, table_source
from streamkit.entry_points import PLUGINS, offers_of
from streamkit.errors import ConfigurationError
from streamkit.management.endpoint import EndpointRoute, ManagedApplication, ManagementEndpoint
from streamkit.messaging.message_converter import MessageConverter, Reader, Writer
from streamkit.messaging.mime import MimeType
from streamkit.plugins import hookimpl
from streamkit.plugins.application_plugins import ApplicationPlugins

Install = Callable[..., None]

CONVERTERS = """
from streamkit.plugins import hookimpl

class Converter:
    def __init__(self, name): self.name = name
    def reader(self, type_, mime): return None
    def writer(self, type_, mime): return None

@hookimpl{mark}
def streamkit_message_converters():
    return [Converter({name!r})]
"""
TYPES = """
from binders.inmemory.plugin import InMemoryBinderType
from streamkit.plugins import hookimpl

@hookimpl
def streamkit_binder_types():
    return {{name: InMemoryBinderType() for name in {names}}}
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return a function that installs a package of one module with entry points by group."""
    monkeypatch.syspath_prepend(tmp_path)
    modules: list[str] = []

    def make(package: str, text: str, **groups: str) -> None:
        module = package.replace("-", "_")
        modules.append(module)
        (tmp_path / f"{module}.py").write_text(text)
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        lines = (f"[streamkit.{group}]\n{name} = {module}\n" for group, name in groups.items())
        (info / "entry_points.txt").write_text("".join(lines))

    yield make
    for module in modules:
        sys.modules.pop(module, None)


def test_package_installed_later_is_found(install: Install, tmp_path: Path) -> None:
    """The cache is dropped when a directory of the path changes."""
    install("early", "", plugins="early")
    assert {"early"} <= offers_of(PLUGINS).keys()
    before = tmp_path.stat()
    install("late", "", plugins="late")
    os.utime(tmp_path, ns=(before.st_atime_ns, before.st_mtime_ns + 10**9))  # the file system's clock is coarse
    assert {"early", "late"} <= offers_of(PLUGINS).keys()


class Colour:
    """A type that only its plugin's converter supports."""

    def __init__(self, name: str) -> None:
        self.name = name


class ColourPlugin:
    """A plugin in code with one hook of each kind."""

    name = "colours"

    def __init__(self, **settings: str) -> None:
        self._settings = settings

    @hookimpl
    def streamkit_message_converters(self) -> list[MessageConverter]:
        """Return itself."""
        return [self]

    def reader(self, type_: object, mime: MimeType) -> Reader | None:
        """Return the reader of its own type only."""
        return (lambda data: Colour(data.decode())) if type_ is Colour else None

    def writer(self, type_: type, mime: MimeType) -> Writer | None:
        """Return the writer of its own type only."""
        return (lambda colour: colour.name.encode()) if type_ is Colour else None

    @hookimpl
    def streamkit_settings_sources(self, environment: Environment) -> list[PropertySource]:
        """Return its table; a value may refer to settings of other sources."""
        table = {key.replace("__", "."): value for key, value in self._settings.items()}
        return [table_source("colours", table, f"colour server of {environment.text('colours.region')}")]

    @hookimpl
    def streamkit_management_endpoints(self, application: ManagedApplication) -> list[ManagementEndpoint]:
        """Return an endpoint with a read and a write operation."""

        async def look(request: Request) -> JSONResponse:
            return JSONResponse({"running": application.is_running})

        routes = [EndpointRoute("GET", "", look), EndpointRoute("POST", "/{colour}", look)]
        return [ManagementEndpoint(self.name, routes)]


class TypesPlugin:
    """A plugin that offers the in-memory binder under its own names."""

    def __init__(self, *names: str) -> None:
        self._names = names

    @hookimpl
    def streamkit_binder_types(self) -> Mapping[str, BinderType]:
        """Return one type for all names."""
        return dict.fromkeys(self._names, InMemoryBinderType())


def application(*plugins: object, **settings: str) -> StreamApplication:
    """Return an in-memory application with these plugins."""
    table = {
        "spring.cloud.stream.default-binder": "inmemory",
        "spring.cloud.stream.bindings.in.destination": "t",
    }
    return StreamApplication(
        config_location="optional:/none",
        properties=table | {key.replace("__", "."): value for key, value in settings.items()},
        plugins=plugins,
    )


def converter_names(plugins: ApplicationPlugins) -> list[str]:
    return [getattr(converter, "name", "") for converter in plugins.message_converters()]


def test_plugins_converter_precedes_streamkits() -> None:
    """A listener takes a type that only the plugin reads."""
    app = application(ColourPlugin())
    seen: list[str] = []

    @app.stream_listener("in")
    async def note(colour: Colour) -> None:
        seen.append(colour.name)

    with app.test() as test:
        test.input("in").send(Colour("green"))
    assert seen == ["green"]


def test_plugins_settings_source_overrides_files_but_not_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees the other settings, and its values keep their origin."""
    (tmp_path / "application.properties").write_text("colours.region=eu\nshop.a=file\nshop.b=file\n")
    monkeypatch.setenv("SHOP_A", "variable")
    plugin = ColourPlugin(shop__a="plugin", shop__b="plugin")
    app = StreamApplication(config_location=tmp_path, plugins=[plugin])
    assert app.environment.text("shop.a") == "variable"
    found = app.environment.get("shop.b")
    assert found is not None
    assert (str(found), str(found.origin)) == ("plugin", "colour server of eu")


def test_plugins_endpoint_is_exposed_and_restricted_like_others() -> None:
    """By its name; write operations are not served with read-only access."""
    settings = {
        "management__server__port": "0",
        "management__endpoints__web__exposure__include": "health,colours",
        "management__endpoint__colours__access": "read-only",
    }
    app = application(ColourPlugin(), **settings)
    with app, httpx.Client(base_url=str(app.management_url)) as client:
        assert list(client.get("").json()["_links"]) == ["self", "health", "colours"]
        assert client.get("/colours").json() == {"running": True}
        assert client.post("/colours/red").status_code == 404


def test_plugins_are_called_in_order(install: Install) -> None:
    """Those in code as given, then installed ones by entry point name; marks override both."""
    install("zoo-b", CONVERTERS.format(name="b", mark=""), plugins="beta")
    install("zoo-a", CONVERTERS.format(name="a", mark=""), plugins="alpha")
    install("zoo-c", CONVERTERS.format(name="c", mark="(tryfirst=True)"), plugins="gamma")
    first, second = ColourPlugin(), ColourPlugin()
    first.name, second.name = "first", "second"
    assert converter_names(ApplicationPlugins([first, second])) == ["c", "first", "second", "a", "b"]


def test_installed_plugin_that_is_also_given_is_called_once(install: Install) -> None:
    """At its position in code."""
    install("zoo-a", CONVERTERS.format(name="a", mark=""), plugins="alpha")
    install("zoo-b", CONVERTERS.format(name="b", mark=""), plugins="beta")
    beta = __import__("zoo_b")
    assert converter_names(ApplicationPlugins([beta])) == ["b", "a"]


def test_binder_type_is_loaded_on_first_use(install: Install) -> None:
    """Its name is known before."""
    install("zoo", TYPES.format(names=["cage"]), binders="cage")
    types = ApplicationPlugins().binder_types()
    assert "cage" in types.names
    assert "zoo" not in sys.modules
    assert isinstance(types.get("cage"), InMemoryBinderType)
    assert types.get("cage") is types.get("cage")


def test_plugin_of_both_groups_claims_its_type_once(install: Install) -> None:
    """Its other hooks are called too."""
    install("zoo", TYPES.format(names=["cage"]), binders="cage", plugins="zoo")
    assert isinstance(ApplicationPlugins().binder_types().get("cage"), InMemoryBinderType)


def test_two_packages_with_one_binder_type_are_both_named(install: Install) -> None:
    """When the type is used; other types work."""
    install("zoo", TYPES.format(names=["cage"]), binders="cage")
    install("park", TYPES.format(names=["cage"]), plugins="park")
    types = ApplicationPlugins().binder_types()
    with pytest.raises(ConfigurationError) as raised:
        types.get("cage")
    assert str(raised.value) == (
        "binder type 'cage' is claimed by park of package park and by zoo of package zoo: remove all but one of them"
    )
    assert isinstance(types.get("inmemory"), InMemoryBinderType)


def test_two_plugins_in_code_with_one_binder_type_are_both_named() -> None:
    """Objects of one class are numbered."""
    types = ApplicationPlugins([TypesPlugin("cage"), TypesPlugin("cage", "den")]).binder_types()
    with pytest.raises(ConfigurationError, match=r"TypesPlugin, given.* and by .*TypesPlugin, given .*\(2\)"):
        types.get("cage")
    assert isinstance(types.get("den"), InMemoryBinderType)


def test_type_given_in_code_replaces_the_installed_one() -> None:
    """For tests and applications."""

    class Mine(InMemoryBinder):
        """A custom binder."""

    class MyType(InMemoryBinderType):
        def create_binder(self, name: str, context: BinderContext) -> Binder:
            return Mine(name, context)

        @hookimpl
        def streamkit_binder_types(self) -> Mapping[str, BinderType]:
            return {"inmemory": self}

    app = application(MyType())
    assert isinstance(app.container.binders().get("inmemory"), Mine)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "import nonesuch",
            "plugin 'cage' zoo of package zoo, cannot be loaded: ModuleNotFoundError: No module",
        ),
        ("x = 1", "the plugin zoo of package zoo has no hooks"),
        (
            "from streamkit.plugins import hookimpl\n@hookimpl\ndef streamkit_message_convertors(): ...",
            "implements streamkit_message_convertors, which is not a hook; did you mean streamkit_message_converters",
        ),
        (
            "from streamkit.plugins import hookimpl\n@hookimpl\ndef streamkit_message_converters(colour): ...",
            "zoo of package zoo is not made for this version of streamkit",
        ),
    ],
)
def test_wrong_plugin_is_named_with_its_package(install: Install, text: str, message: str) -> None:
    """It cannot be loaded, or its hooks have a wrong signature."""
    install("zoo", text, plugins="cage")
    for _ in range(2):
        with pytest.raises(ConfigurationError) as raised:
            ApplicationPlugins()
        assert message in str(raised.value)


def test_failing_hook_is_named_with_its_plugin(install: Install) -> None:
    """Whatever it raises, as the error of the start."""
    failing = "from streamkit.plugins import hookimpl\n@hookimpl\ndef streamkit_settings_sources(): raise OSError('x')"
    install("zoo", failing, plugins="zoo")
    app = StreamApplication(config_location="optional:/none")
    with pytest.raises(ConfigurationError) as raised:
        _ = app.environment
    assert str(raised.value) == "streamkit_settings_sources of the plugin zoo of package zoo failed: OSError: x"


@pytest.mark.parametrize(
    ("hook", "answer", "message"),
    [
        ("message_converters", "[7]", "returned 7, which has no reader and no writer"),
        ("message_converters", "7", "failed: TypeError: 'int' object is not iterable"),
        ("message_converters", "(1 / 0 for _ in 'x')", "failed: ZeroDivisionError"),
        ("binder_types", "{'cage': 7}", "returned 7 for 'cage', which is not a BinderType"),
        ("binder_types", "['cage']", "returned None for 'cage', which is not a BinderType"),
    ],
)
def test_hook_result_of_a_wrong_type_is_named_with_its_plugin(
    install: Install, hook: str, answer: str, message: str
) -> None:
    """At the start, not at its first use."""
    text = f"from streamkit.plugins import hookimpl\n@hookimpl\ndef streamkit_{hook}(): return {answer}"
    install("zoo", text, plugins="zoo")
    plugins = ApplicationPlugins()
    with pytest.raises(ConfigurationError) as raised:
        getattr(plugins, hook)()
    assert f"streamkit_{hook} of the plugin zoo of package zoo {message}" in str(raised.value)


@pytest.mark.parametrize("answer", ["None", "[]"])
def test_hook_may_return_nothing(install: Install, answer: str) -> None:
    """A plugin may have nothing to add."""
    install(
        "zoo",
        f"from streamkit.plugins import hookimpl\n@hookimpl\ndef streamkit_message_converters(): return {answer}",
        plugins="zoo",
    )
    assert ApplicationPlugins().message_converters() == ()


def test_wrapper_hook_wraps_the_results_of_all_plugins(install: Install) -> None:
    """As in pluggy."""
    install("zoo-a", CONVERTERS.format(name="a", mark=""), plugins="alpha")

    class Doubling:
        @hookimpl(wrapper=True)
        def streamkit_message_converters(self) -> Generator[None, list[list[object]], list[list[object]]]:
            """Return each converter twice."""
            answers = yield
            return [[*answer, *answer] for answer in answers]

    assert converter_names(ApplicationPlugins([Doubling()])) == ["a", "a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            TYPES.format(names=["den"]),
            "zoo of package zoo is the entry point of binder type 'cage', but .*: den",
        ),
        (
            CONVERTERS.format(name="a", mark=""),
            "implements streamkit_message_converters: make it an entry point of",
        ),
    ],
)
def test_entry_point_without_its_binder_type_is_an_error(install: Install, text: str, message: str) -> None:
    """It offers another type, or has hooks that would not be called."""
    install("zoo", text, binders="cage")
    types = ApplicationPlugins().binder_types()
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=message):
            types.get("cage")


def test_class_is_no_plugin() -> None:
    """Its hooks would be called without an object."""
    with pytest.raises(ConfigurationError, match="TypesPlugin, given to the application is a class: an instance"):
        ApplicationPlugins([TypesPlugin])


def test_two_endpoints_of_one_name_are_an_error() -> None:
    """Of two plugins, or of a plugin and streamkit."""
    twice = ApplicationPlugins([ColourPlugin(), ColourPlugin()])
    with pytest.raises(ConfigurationError, match=r"endpoint 'colours' is claimed by .*ColourPlugin.*\(2\)"):
        twice.management_endpoints(application())
    with pytest.raises(ConfigurationError, match=r"endpoint 'colours' is claimed by streamkit and by .*ColourPlugin"):
        ApplicationPlugins([ColourPlugin()]).management_endpoints(application(), ["colours"])


@pytest.mark.parametrize("name", ["", "a/b", "-a", "a b", "a.b"])
def test_endpoint_name_has_no_dots_or_slashes(name: str) -> None:
    """It is part of a path and of settings."""
    with pytest.raises(ValueError, match="is not a valid name for an endpoint"):
        ManagementEndpoint(name, [])
