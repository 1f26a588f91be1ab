"""The sources of settings and their precedence."""

import os
import re
import tempfile
from pathlib import Path

import pytest

from streamkit.config.environment import Environment
from streamkit.config.settings import StreamSettings
from streamkit.errors import ConfigurationError


@pytest.fixture
def files(tmp_path):
    """Return a function that writes files below a directory and loads an environment from there."""

    class Files:
        directory = tmp_path

        def write(self, name, text):
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

        def load(self, *arguments, variables=None, **options):
            return Environment.load(directory=tmp_path, arguments=arguments, variables=variables or {}, **options)

    return Files()


def test_precedence_of_sources(files):
    """Each source overrides the next weaker one, and the value has its origin."""
    expected = []
    files.write("application.yml", "k: yml\nprofile: 1")
    expected.append(("yml", "application.yml:1"))
    files.write("application.properties", "k=properties")
    expected.append(("properties", "application.properties:1"))
    files.write("config/application.yml", "k: config")
    expected.append(("config", "config/application.yml:1"))
    files.write("application-a.properties", "k=profile a")
    expected.append(("profile a", "application-a.properties:1"))
    files.write("application-b.properties", "\nk=profile b")
    expected.append(("profile b", "application-b.properties:2"))

    def found(*arguments, **variables):
        value = files.load(*arguments, variables=variables, defaults={"k": "d", "only": "x"}).get("k")
        return value.value, str(value.origin)

    assert found(SPRING_PROFILES_ACTIVE="a,b") == expected[4]
    assert found(SPRING_PROFILES_ACTIVE="b,a") == expected[3]
    assert found() == expected[2]
    (files.directory / "config/application.yml").unlink()
    assert found() == expected[1]
    (files.directory / "application.properties").unlink()
    assert found() == expected[0]
    (files.directory / "application.yml").unlink()
    assert found() == ("d", "default given in code")
    assert found(K="v") == ("v", "environment variable K")
    assert found(K="v", SPRING_APPLICATION_JSON='{"k": "j"}') == (
        "j",
        "environment variable SPRING_APPLICATION_JSON",
    )
    assert found("--k=arg", K="v", SPRING_APPLICATION_JSON='{"k": "j"}') == ("arg", "argument --k")


def test_overrides_in_code_take_precedence(files):
    """What code overrides wins over everything."""
    environment = files.load("--k=a", overrides={"k": 5})
    assert (environment.get("k").value, str(environment.get("k").origin)) == (5, "given in code")


def test_missing_key_is_none_or_the_default(files):
    """A key nobody sets is None, or the default asked for."""
    environment = files.load()
    assert environment.get("missing") is None
    assert environment.text("missing") is None
    assert environment.text("missing", "x") == "x"


@pytest.mark.parametrize(
    "key", ["my.name-server", "my.nameServer", "my.name_server", "MY.NAMESERVER", "my.NAME-SERVER"]
)
@pytest.mark.parametrize("source", ["file", "MY_NAMESERVER", "MY_NAME_SERVER", "my.nameServer"])
def test_relaxed_lookup(files, key, source):
    """A setting is found in every spelling, in files and environment variables."""
    files.write("application.properties", "my.nameServer=x" if source == "file" else "")
    variables = {} if source == "file" else {source: "x"}
    assert files.load(variables=variables).text(key) == "x"


def test_environment_variable_with_dots_is_a_key(files):
    """As in files, brackets included, and as in Spring Boot."""
    prefix = "spring.cloud.stream"
    files.write("application.properties", f"{prefix}.bindings.orders.group=file")
    variables = {f"{prefix}.bindings.Orders.group": "g", f"{prefix}.bindings[my.own].destination": "there"}
    environment = files.load(variables=variables)
    for each in (environment, environment.portable()):
        bindings = StreamSettings.load(each).bindings
        assert {name: (own.group, own.destination) for name, own in bindings.items()} == {
            "orders": ("g", None),
            "my.own": (None, "there"),
        }
    with pytest.raises(ConfigurationError, match=r"did you mean spring\.cloud\.stream\.bindings\.a\.group\?"):
        StreamSettings.load(files.load(variables={f"{prefix}.bindings.a.grup": "g"}))


def test_arguments_are_settings(files):
    """`--key=value` and `--key`; other arguments are ignored."""
    environment = files.load("run", "--a.b=c=d", "--flag", "-x", "--")
    assert (environment.text("a.b"), environment.text("flag")) == ("c=d", "true")


def test_conditional_documents(files):
    """A document applies if its profile expression is true, and then overrides earlier ones."""
    files.write(
        "application.properties",
        "k=base\n#---\nspring.config.activate.on-profile=prod & !eu\nk=prod\n"
        "#---\nspring.config.activate.on-profile=dev, (eu & prod)\nk=other",
    )
    for active, expected in {
        "": "base",
        "prod": "prod",
        "prod,eu": "other",
        "dev": "other",
        "eu": "base",
    }.items():
        assert files.load(f"--spring.profiles.active={active}").text("k") == expected


def test_profiles_listed_in_a_file(files):
    """Files may list the active profiles and include more, which are weaker; a stronger list replaces the first."""
    files.write("application.yml", "spring.profiles: {active: a, include: b}")
    assert files.load().active_profiles == ("b", "a")
    files.write("application.yml", "spring.profiles:\n  active: [a, x]\n  include:\n  - b")
    assert files.load().active_profiles == ("b", "a", "x")
    assert files.load("--spring.profiles.active=c").active_profiles == ("b", "c")
    files.write("application-b.yml", "k: b")
    files.write("application-c.yml", "k: c")
    assert files.load("--spring.profiles.active=c").text("k") == "c"


def test_profiles_are_included_by_all_sources(files):
    """Each source adds profiles, the strongest first; groups are expanded where they stand, as in Spring Boot."""
    files.write("application.yml", "spring.profiles: {include: a, group.a: g}\n---\nspring.profiles.include: [b, a]")
    environment = files.load("--spring.profiles.include=c", "--spring.profiles.active=d")
    assert environment.active_profiles == ("c", "b", "a", "g", "d")


@pytest.mark.parametrize("key", ["active", "include", "default", "include[0]"])
@pytest.mark.parametrize(
    ("file", "condition"),
    [
        ("application-prod.properties", "x=y"),
        ("application.properties", "spring.config.activate.on-profile=prod"),
        ("application.properties", "spring.profiles=prod"),
        ("more-prod.properties", "x=y"),
    ],
)
def test_the_settings_of_a_profile_do_not_activate_profiles(files, key, file, condition):
    """As in Spring Boot: which profiles are active is known before their settings are read."""
    files.write("application.yml", "spring.config.import: more.properties\nspring.profiles.group.live: prod")
    files.write("more.properties", "x=1")
    files.write(file, f"{condition}\nspring.profiles.{key}=b")
    place = f"{file}:2: spring.profiles.{key}=b: ".replace("[", r"\[")
    with pytest.raises(ConfigurationError, match=f"{place}.* cannot say which profiles are active"):
        files.load("--spring.profiles.include=live")


@pytest.mark.parametrize(
    ("active", "warning"),
    [
        ("prod", None),
        ("live", None),  # a group
        ("beta", None),  # a condition names it
        ("more", None),  # beside an imported file
        ("default", None),
        ("prd", "there is no file application-prd.yml or application-prd.properties, .* did you mean 'prod'?"),
        ("nothing", "No settings belong to the active profile 'nothing': .* no document names it$"),
    ],
)
def test_an_active_profile_without_settings_is_warned_about(files, caplog, active, warning):
    """It may be misspelt, and the application may have started with the settings of no profile."""
    files.write("application.yml", "spring.profiles.group.live: prod\nspring.config.import: x.yml\n---\nk: 1")
    files.write("x.yml", "spring.config.activate.on-profile: '!beta'\nk: 1")
    files.write("x-more.yml", "k: 1")
    files.write("config/application-prod.yml", "k: prod")
    files.load(f"--spring.profiles.active={active}")
    assert [re.search(warning, text) is not None for text in caplog.messages] == ([] if warning is None else [True])


def test_the_files_that_were_read_are_known(files):
    """The weakest first; without any, the places that were searched."""
    assert str(files.load().files) == (
        f"no settings file found in {files.directory}, {files.directory}/config, {files.directory}/config/*"
    )
    files.write("application.yml", "spring.config.import: x.yml\n---\nspring.config.activate.on-profile: a\nk: 1")
    files.write("x.yml", "k: 2")
    files.write("application-a.properties", "k=3")
    assert str(files.load().files) == "settings from application.yml, x.yml"
    assert files.load("--spring.profiles.active=a").files.read == (
        "application.yml",
        "x.yml",
        "application-a.properties",
    )


def test_a_stronger_list_of_profiles_hides_one_with_a_condition(files):
    """Spring Boot does not look at the weaker list either."""
    files.write("application.properties", "k=1\n#---\nspring.config.activate.on-profile=a\nspring.profiles.active=b")
    with pytest.raises(ConfigurationError, match=r"application.properties:4: .* a document that depends on a profile"):
        files.load()
    assert files.load("--spring.profiles.active=c").active_profiles == ("c",)


def test_default_profile(files):
    """Without an active profile, `default` is active."""
    files.write("application-default.yml", "k: x")
    assert files.load().text("k") == "x"
    assert files.load("--spring.profiles.active=y").text("k") is None


def test_malformed_condition_names_its_line(files):
    """A profile expression that is none names its line."""
    files.write("application.properties", "a=1\nspring.config.activate.on-profile=(x")
    with pytest.raises(ConfigurationError, match=r"application.properties:2: '\(x' is not a profile expression"):
        files.load()


def test_config_locations(files):
    """Files can be read from other places, given in code or by argument, or in addition."""
    files.write("application.properties", "k=here\nonly=here")
    files.write("other/application.properties", "k=other")
    files.write("other/special.yml", "k: special")
    other = files.directory / "other"
    assert files.load(config_location=other).text("k") == "other"
    assert files.load(config_location="other/special.yml").text("k") == "special"
    assert files.load(config_location=other).text("only") is None
    assert files.load("--spring.config.location=other").text("k") == "other"
    assert files.load("--spring.config.additional-location=other").text("k") == "other"
    assert files.load("--spring.config.additional-location=other").text("only") == "here"
    assert files.load("--spring.config.name=special", config_location=other).text("k") == "special"


@pytest.mark.parametrize(
    ("locations", "value"),
    [
        ("first/,second/", "second"),
        ("second/,first/", "first for dev"),
        ("first/;second/", "first for dev"),
        ("first/application.yml,second/", "second"),
        ("second/,first/application.yml", "first for dev"),
    ],
)
def test_locations_and_groups_of_locations(files, locations, value):
    """A later location overrides an earlier one with its profiles; in a group, profiles override all its locations."""
    files.write("first/application.yml", "k: first")
    files.write("first/application-dev.yml", "k: first for dev")
    files.write("second/application.yml", "k: second")
    profile = "--spring.profiles.active=dev"
    assert files.load(f"--spring.config.location={locations}", profile).text("k") == value
    assert files.load(f"--spring.config.additional-location={locations}", profile).text("k") == value


def test_missing_location_is_an_error(files):
    """Unless it is optional."""
    with pytest.raises(ConfigurationError, match=r"no settings file or directory .*nowhere.*optional:"):
        files.load(config_location="nowhere")
    assert files.load(config_location="optional:nowhere").get("k") is None


def test_placeholders(files):
    """Nested and with defaults, wherever the other setting comes from."""
    files.write("application.properties", "a=${b:${c:x}}-${d}\nd=${E}${f:}\n")
    environment = files.load(variables={"E": "e"})
    assert environment.text("a") == "x-e"
    assert files.load("--c=y", variables={"E": "e"}).text("a") == "y-e"
    assert str(environment.get("a").origin) == "application.properties:1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("${a}", "application.yml:1: k=${a}: the placeholder ${a} leads back to itself: a → b → a"),
        ("${k}", "application.yml:1: k=${k}: the placeholder ${k} leads back to itself: k → k"),
        ("${z}", "application.yml:1: k=${z}: nothing sets 'z'"),
    ],
)
def test_unresolvable_placeholders_are_errors(files, text, expected):
    """A cycle or an unknown key; the error has the origin."""
    files.write("application.yml", f"k: {text}\na: ${{b}}\nb: ${{a}}")
    with pytest.raises(ConfigurationError) as caught:
        files.load().get("k")
    assert str(caught.value).startswith(expected)


@pytest.mark.parametrize("text", ["{", "[1]", '"x"'])
def test_application_json_must_be_an_object(files, text):
    """SPRING_APPLICATION_JSON has to be a JSON object."""
    with pytest.raises(ConfigurationError, match="environment variable SPRING_APPLICATION_JSON: "):
        files.load(variables={"SPRING_APPLICATION_JSON": text})


def test_json_is_flattened(files):
    """Like nested YAML, with any scalars."""
    environment = files.load('--spring.application.json={"a": {"b": [1, {"c": true}], "d.e": null}}')
    assert environment.get("a.b[0]").value == 1
    assert environment.get("a.b[1].c").value is True
    assert environment.text("a.d.e") == ""


def test_binder_environment_overrides_and_may_be_isolated(files):
    """It takes precedence inside, and may exclude the application's."""
    files.write(
        "application.properties",
        "name=app\nspring.cloud.stream.binders.one.environment.name=one\n"
        "spring.cloud.stream.binders.one.environment.a[x.y].b=2",
    )
    environment = files.load(variables={"SPRING_CLOUD_STREAM_BINDERS_ONE_ENVIRONMENT_Z": "3", "OTHER": "4"})
    prefix = "spring.cloud.stream.binders.one.environment"
    inner = environment.below(prefix)
    assert (inner.text("name"), inner.text("a[x.y].b"), inner.text("z"), inner.text("other")) == (
        "one",
        "2",
        "3",
        "4",
    )
    assert str(inner.get("name").origin) == "application.properties:2"
    assert environment.below(prefix, inherit=False).text("other") is None


def test_profile_groups(files):
    """A profile may stand for others, recursively; a cycle ends."""
    files.write(
        "application.yml",
        "spring.profiles.active: ${MODE:live}\n"
        "spring.profiles.group:\n  live: [eu, metrics]\n  eu: secure\n  secure: live",
    )
    assert files.load().active_profiles == ("live", "eu", "secure", "metrics")
    assert files.load(variables={"MODE": "dev"}).active_profiles == ("dev",)


def test_default_profile_can_be_changed(files):
    """`spring.profiles.default`, without an active profile."""
    files.write("application.yml", "spring.profiles.default: local")
    assert files.load().active_profiles == ("local",)


def test_conditions_before_spring_boot_2_4(files):
    """A document's condition was called `spring.profiles`."""
    files.write("application.yml", "k: base\n---\nspring.profiles: prod,test\nk: prod")
    assert files.load("--spring.profiles.active=test").text("k") == "prod"
    assert files.load().text("k") == "base"


def test_a_document_for_another_platform_activates_no_profile(files):
    """It does not count at all."""
    files.write(
        "application.yml", "k: 1\n---\nspring: {config.activate.on-cloud-platform: kubernetes, profiles.active: a}"
    )
    assert files.load().active_profiles == ("default",)
    assert files.load("--spring.main.cloud-platform=kubernetes").active_profiles == ("a",)


def test_documents_for_a_cloud_platform(files):
    """A document for Kubernetes applies there, or where a setting names the platform."""
    files.write("application.yml", "k: base\n---\nspring.config.activate.on-cloud-platform: kubernetes\nk: cluster")
    assert files.load().text("k") == "base"
    there = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert files.load(variables=there).text("k") == "cluster"
    assert files.load("--spring.main.cloud-platform=kubernetes").text("k") == "cluster"
    assert files.load("--spring.main.cloud-platform=none", variables=there).text("k") == "base"


def test_bootstrap_files_are_the_weakest_source(files):
    """Spring Cloud reads them first; they often have the service's name and profiles."""
    files.write("bootstrap.yml", "spring: {application.name: shop, profiles.active: dev}\nk: bootstrap\nj: bootstrap")
    files.write("bootstrap-dev.yml", "j: dev")
    files.write("application.yml", "k: application")
    environment = files.load()
    assert environment.active_profiles == ("dev",)
    assert [environment.text(key) for key in ("spring.application.name", "k", "j")] == [
        "shop",
        "application",
        "dev",
    ]


def test_imported_files(files):
    """They override the importing document and have profile variants; each is read once."""
    files.write("application.yml", "spring.config.import: more/shop.yml, optional:file:nowhere.yml\nk: here\nj: here")
    files.write("more/shop.yml", "spring.config.import: [shop.yml, './plain[.properties]']\nk: shop\ni: shop")
    files.write("more/shop-dev.yml", "i: dev")
    files.write("more/plain", "h=plain")
    environment = files.load("--spring.profiles.active=dev")
    assert [environment.text(key) for key in "kjih"] == ["shop", "here", "dev", "plain"]
    assert str(environment.get("k").origin) == "more/shop.yml:2"
    files.write("application-dev.yml", "k: profile")
    assert files.load("--spring.profiles.active=dev").text("k") == "profile"


def test_imports_with_placeholders(files):
    """Resolved from stronger sources and the same document."""
    files.write("application.yml", "spring.config.import: ${place}/x.yml\nplace: a")
    files.write("a/x.yml", "k: a")
    files.write("b/x.yml", "k: b")
    assert files.load().text("k") == "a"
    assert files.load("--place=b").text("k") == "b"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x.yml", "application.yml:1: spring.config.import=x.yml: there is no '.*x.yml'; write `optional:`"),
        (
            "more",
            "application.yml:1: spring.config.import=more: 'more' ends neither in .properties nor in .yml",
        ),
        ("${no}.yml", "application.yml:1: spring.config.import=.*: nothing sets 'no'"),
    ],
)
def test_invalid_imports_are_errors(files, text, expected):
    """A missing file, an unknown kind and an unknown placeholder, with the importing line."""
    files.write("application.yml", f"spring.config.import: {text}")
    files.write("more", "")
    with pytest.raises(ConfigurationError, match=expected):
        files.load()


def test_remote_imports_are_warned_about(files, caplog):
    """Nacos and config servers are not read, so that a service's files can stay unchanged."""
    files.write("application.yml", "spring.config.import: 'nacos:${x}.yml, optional:configserver:http://c'\nk: 1")
    environment = files.load()
    assert environment.text("k") == "1"
    assert [warning.reason.partition(":")[0] for warning in environment.warnings.values()] == [
        "nacos",
        "configserver",
    ]
    assert "spring.config.import has no effect: nacos: is not read here" in caplog.text


def test_config_tree(files):
    """Each file of a mounted volume is a setting whose key is its path; a directory of settings files works too."""
    files.write("application.yml", "spring.config.import: 'configtree:secrets/, file:more/'")
    files.write("secrets/shop.token", "abc\n")
    files.write("more/application.yml", "k: more")
    for name in ("db", "..2030_01_01", ".git"):  # what Kubernetes and others keep beside is no setting
        (files.directory / "secrets" / name).mkdir()
        files.write(f"secrets/{name}/password", "x")
    environment = files.load()
    assert (environment.text("shop.token"), environment.text("db.password"), environment.text("k")) == (
        "abc",
        "x",
        "more",
    )
    assert str(environment.get("db.password").origin) == "secrets/db/password"
    assert environment.get("git.password") is environment.get("2030_01_01.password") is None


def test_directories_below_config(files):
    """They are read after `config/` itself, by their names; a volume's own directory is left out."""
    files.write("config/application.yml", "k: 0\nj: 0")
    files.write("config/b/application.yml", "k: b")
    files.write("config/a/application.yml", "k: a\nj: a")
    files.write("config/..2030/application.yml", "k: no")
    files.write("config/a/application-dev.yml", "k: dev")
    assert [files.load().text(key) for key in "kj"] == ["b", "a"]
    assert files.load("--spring.profiles.active=dev").text("k") == "dev"
    assert files.load("--spring.config.location=config/*/").text("k") == "b"
    with pytest.raises(ConfigurationError, match="there is no settings file or directory"):
        files.load("--spring.config.location=nowhere/*/")


def test_trees_of_files_in_each_directory(files):
    """`configtree:secrets/*/`: each directory there is a tree of its own."""
    files.write("application.yml", "spring.config.import: optional:configtree:secrets/*/")
    assert files.load().text("db.password") is None
    files.write("secrets/one/db.password", "x")
    files.write("secrets/two/shop.token", "y")
    environment = files.load()
    assert (environment.text("db.password"), environment.text("shop.token")) == ("x", "y")
    files.write("application.yml", "spring.config.import: configtree:nothing/*/")
    with pytest.raises(ConfigurationError, match=r"there is no '.*nothing/\*'"):
        files.load()


def test_javas_system_properties(files):
    """Spring's files refer to some of them; they win over environment variables and are no settings."""
    files.write("application.yml", "k: ${user.home}/a\nj: ${java.io.tmpdir}\ni: ${PID}\nh: ${user.dir}")
    environment = files.load(variables={"USER_HOME": "/nowhere"})
    expected = [f"{Path.home()}/a", tempfile.gettempdir(), str(os.getpid()), str(Path.cwd())]
    assert [environment.text(key) for key in "kjih"] == expected
    assert files.load("--user.home=/here").text("k") == "/here/a"


@pytest.mark.parametrize(
    ("key", "low", "high"),
    [
        ("random.int", -(2**31), 2**31),
        ("random.int(10)", 0, 10),
        ("random.int[5,7]", 5, 7),
        ("random.long(3, 4)", 3, 4),
        ("random.long", -(2**63), 2**63),
    ],
)
def test_random_numbers(files, key, low, high):
    """`${random.int}` and its relatives are within their range."""
    environment = files.load(f"--k=${{{key}}}")
    assert all(low <= int(environment.text("k")) < high for _ in range(5))


def test_other_random_values(files):
    """`random.uuid` and `random.value` differ each time; an invalid range sets nothing."""
    environment = files.load("--k=${random.uuid}")
    assert len({environment.text("k") for _ in range(3)}) == 3
    assert len(environment.text("random.value")) == 32
    assert environment.get("random.int[7,7]") is None
    assert environment.get("random.thing") is None
