"""Secrets among the settings are masked everywhere; other values stay readable."""

import traceback
from collections.abc import Callable
from pathlib import Path
from string import ascii_letters, digits
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field

from binders.kafka import plugin as kafka
from streamkit.binder.spark_format import SparkFormat
from streamkit.cli.config import config
from streamkit.cli.setting_arguments import expect_settings
from streamkit.config.application_properties import GROUPS
from streamkit.config.document import Document
from streamkit.config.environment import Environment
from streamkit.config.explain import explain_model, setting_text
from streamkit.config.located_errors import located
from streamkit.config.origin import Origin, Value
from streamkit.config.relaxed import parse_key
from streamkit.config.report import ReportedSetting, report_settings
from streamkit.config.secret import without_secrets
from streamkit.config.setting_limits import Rejected
from streamkit.config.settings import StreamSettings
from streamkit.config.settings_model import SettingsModel, setting
from streamkit.config.shape import AnyModel, Section, section_of
from streamkit.config.source import Entry, table_source
from streamkit.config.tree import read_tree
from streamkit.config.verdict import SettingWarning
from streamkit.config.yaml_file import parse_yaml
from streamkit.errors import ConfigurationError, StreamkitError
from streamkit.plugins.application_plugins import ApplicationPlugins
from streamkit.running.rehearsal import rehearse_settings

PLUGINS: Final = ApplicationPlugins([kafka])

WORDS: Final = (
    "password", "passwd", "pwd", "pass", "passphrase", "secret", "token", "credential", "credentials", "private key",
    "access key", "secret key", "api key", "account key", "encryption key", "signing key", "auth", "authorization",
    "sasl jaas config", "basic auth user info", "ssl keystore key", "key store password", "keystore password",
    "ssl key password", "trust store password", "client secret", "connection string", "passwords", "secrets", "tokens",
)  # fmt: skip
"""Names of secrets, as their documentation spells them."""

READABLE: Final = (
    "partition-key-expression", "partitionKeyExpression", "message-key", "key.serializer", "value.deserializer",
    "tokenizer", "tokenizer.language", "spring.cloud.stream.bindings.in.group", "authors",
    "ssl.keystore.location", "ssl.key.store.type", "partition-key-extractor-name", "message.key.expression", "bypass",
    "sasl.mechanism", "passenger", "secretary", "compass", "basic.auth.credentials.source", "key", "keys",
    "token.endpoint.url", "primary-key", "SPRING_CLOUD_STREAM_BINDINGS_IN_PRODUCER_PARTITIONKEYEXPRESSION",
    "routing-key-expression", "group", "max-attempts", "secret-name",
)  # fmt: skip
"""Names beside them whose values people need to see."""


def spellings(words: str) -> list[str]:
    """Return the relaxed spellings of a name."""
    parts = words.split()
    camel = parts[0] + "".join(map(str.title, parts[1:]))
    return [
        ".".join(parts), "-".join(parts), "_".join(parts), camel, "_".join(parts).upper(), camel.upper(),
    ]  # fmt: skip


SECRET_KEYS: Final = [spelling for words in WORDS for spelling in spellings(words)]

marks: Final = st.text(ascii_letters + digits, min_size=8, max_size=20).map("S3cr3t".__add__)
punctuation: Final = st.text(ascii_letters + digits + "!$&'()*+,;=-._~%:@", min_size=1, max_size=8)


@st.composite
def keyed(draw: st.DrawFn) -> tuple[str, str, str]:
    """Return a key that names a secret, its value, and the part that must not be shown."""
    mark = draw(marks)
    prefix = draw(st.sampled_from(["", "my.", "my[0].", "configuration.", "a-b.c_d."]))
    suffix = draw(st.sampled_from(["", "", "[0]", "2", ".value"]))
    return f"{prefix}{draw(st.sampled_from(SECRET_KEYS))}{suffix}", mark, mark


@st.composite
def in_value(draw: st.DrawFn) -> tuple[str, str, str]:
    """Return a key that names no secret, and a value that contains one."""
    mark = draw(marks)
    around = st.text(ascii_letters + digits + "!$&*+-._~%", max_size=5)
    odd = f"{draw(around)}{mark}{draw(around)}"
    forms = [
        f"amqp://user:{odd}@host:5672/vhost",
        f"redis://:{odd}@host",
        f"https://u:{odd}:{odd}@host/path?q=1",
        f"amqp://u:{odd}@{odd}@host",
        f"amqp://u:{mark}/x@host/path",
        f"mongodb://u:{mark}@h1:1,v:{mark}@h2:2/db",
        f"amqp://u:{mark}@h1,amqp://v:{mark}@h2",
        f"user:{odd}@host:9092",
        f"u:{mark}@h1:9092,v:{mark}@h2:9092",
        f"u:{mark}@h1:9876;v:{mark}@h2:9876",
        f"jdbc:mysql://host/db?user=me&password={mark}&ssl=true",
        f"jdbc:oracle:thin:me/x@//h;password={mark};a=b",
        f"Endpoint=sb://bus/;SharedAccessKeyName=root;SharedAccessKey={mark}=;EntityPath=q",
        f"host:6379,password={mark},ssl=True",
        f'org.apache.PlainLoginModule required username="me" password="{mark}";',
        f"org.apache.PlainLoginModule required username='me' password='x\\'{mark}';",
        f"module required password={mark};",
        f'{{"user": "me", "password": "{mark}", "x": 1}}',
        f"-----BEGIN PRIVATE KEY-----\n{mark}\n-----END PRIVATE KEY-----\n",
        f"-----BEGIN RSA PRIVATE KEY-----\\n{mark}",
        f"Bearer {mark}",
        f"authorization: bearer {mark}",
    ]
    return draw(st.sampled_from(["url", "my.address", "brokers", "x"])), draw(st.sampled_from(forms)), mark


# Places that show settings: each takes a key and its value, and returns all that is shown of them.


def shown(error: BaseException) -> str:
    """Return everything that a log, a traceback or a program shows of an error."""
    values = [each.value for each in getattr(error, "errors", [error]) if isinstance(each, ConfigurationError)]
    return "".join([str(error), repr(error), *traceback.format_exception(error), *map(str, values)])


def attempted(read: Callable[[], object]) -> str:
    """Return what is shown of the error that reading raises."""
    with pytest.raises((StreamkitError, click.ClickException)) as caught:
        read()
    assert isinstance(caught.value, BaseException)
    message = caught.value.format_message() if isinstance(caught.value, click.ClickException) else ""
    return shown(caught.value) + message


def environment(key: str, value: str, prefix: str = "") -> Environment:
    return Environment([table_source("overrides", {f"{prefix}{key}": value}, "given in code")])


def reported(environment: Environment) -> list[ReportedSetting]:
    return report_settings(environment, rehearse_settings(environment, PLUGINS).problems)


def the_report(key: str, value: str) -> str:
    rows = [
        *reported(environment(key, value)),
        *reported(environment(key, value, "spring.cloud.stream.")),
        *reported(environment(key, value, "spring.cloud.stream.kafka.binder.configuration.")),
        *reported(environment(key, value, "spring.cloud.stream.binders.one.environment.")),
    ]
    return "\n".join(f"{row} {row.value} {row.reason}" for row in rows)


class Anything(SettingsModel):
    name: str = ""
    values: dict[str, str] = setting(default_factory=dict)
    listed: list[str] = setting(default_factory=list)


def settings_of(key: str, value: str) -> Anything:
    return Anything(name=value if "name" in key else "", values={key: value}, listed=[f"{key}={value}"])


def the_explanation(key: str, value: str) -> str:
    return f"{[*explain_model(settings_of(key, value), {})]} {setting_text({key: value})}"


def a_settings_object(key: str, value: str) -> str:
    settings = settings_of(key, value)
    return f"{settings!r} {settings} {StreamSettings(schema_registry_client={key: value})}"


def a_value(key: str, value: str) -> str:
    found = Value(value, Origin("application.properties", 3), key)
    document = Document()
    document.add(parse_key(key), found)
    tree = read_tree([table_source("x", {f"p.values.{key}": value}, "x")], lambda each: each, "p", section_of(Anything))
    return f"{found!r} {Entry(('a',), found)} {SettingWarning(found, 'why')!r} {document} {tree}"


def an_unknown_setting(key: str, value: str) -> str:
    return attempted(lambda: StreamSettings.load(environment(f"nothing.{key}", value, "spring.cloud.stream.")))


def a_wrong_placeholder(key: str, value: str) -> str:
    return attempted(lambda: environment(key, f"{value}${{nothing.sets.this}}").get(key))


def refuse(text: str) -> str:
    raise ValueError(f"{text!r} is not accepted")


def a_refused_value(key: str, value: str) -> str:
    """Return the text of a validation error that repeats the value; pydantic's own error shows it too."""

    class Refusing(BaseModel):
        values: dict[str, Annotated[str, AfterValidator(refuse)]] = Field(default_factory=dict)

    found = environment(f"values.{key}", value, "my.")
    return attempted(lambda: found.bind("my", Refusing))


def an_unsupported_setting(key: str, value: str) -> str:
    class Rejecting(BaseModel):
        values: Annotated[dict[str, str], Rejected("remove it")] = Field(default_factory=dict)

    return attempted(lambda: environment(f"values.{key}", value, "my.").bind("my", Rejecting))


def a_located_error(key: str, value: str) -> str:
    return shown(located(Value(value, Origin("x.yml", 1), key), LookupError(f"there is no {value!r}")))


def an_argument_without_dashes(key: str, value: str) -> str:
    context = click.Context(click.Command("x"))
    return attempted(lambda: expect_settings(context, "PATH", "", [f"{key}={value}"])) + attempted(
        lambda: expect_settings(context, "PATH", f"--{key}={value}", [])
    )


def a_spark_option(key: str, value: str) -> str:
    found = SparkFormat("kafka", {key: value})
    return attempted(lambda: found.options_with({key: value}, "orders"))


def settings_in_json(key: str, value: str) -> str:
    """Return errors about malformed JSON and about JSON as a setting."""
    text = f'{{"{key}": {value!r}'
    shown = attempted(lambda: Environment.load(variables={"SPRING_APPLICATION_JSON": text}))
    rows = reported(environment("spring.application.json", text))
    return shown + "\n".join(map(str, rows))


PLACES: Final = [
    the_report, the_explanation, a_settings_object, a_value, an_unknown_setting, a_wrong_placeholder, a_refused_value,
    an_unsupported_setting, a_located_error, an_argument_without_dashes, a_spark_option,
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@given(secret=st.one_of(keyed(), in_value()))
def test_secrets_are_masked_everywhere(place: Callable[[str, str], str], secret: tuple[str, str, str]) -> None:
    """In any spelling of a secret's name, and within values: URLs, host lists, logins, keys."""
    key, value, mark = secret
    shown = place(key, value)
    assert mark not in shown
    assert mark.lower() not in shown.lower()


@given(secret=keyed())
def test_settings_in_json_are_not_repeated_in_errors(secret: tuple[str, str, str]) -> None:
    """Neither malformed JSON nor JSON as a setting."""
    key, value, mark = secret
    assert mark not in settings_in_json(key, value)


@pytest.mark.parametrize("key", READABLE)
@pytest.mark.parametrize("place", PLACES)
def test_names_similar_to_those_of_secrets_stay_readable(place: Callable[[str, str], str], key: str) -> None:
    """Names that only look like those of secrets."""
    if place is a_spark_option or place is an_unknown_setting or place is a_value:
        return
    assert "headers['Area']" in place(key, "headers['Area']").replace("\\'", "'")


@pytest.mark.parametrize(
    "value",
    [
        "http://host:8080/users/me@example.org",
        "kafka-1:9092,kafka-2:9092",
        "amqp://user@host:5672/vhost",
        "payload.price > 10 and headers['a'] == 'b'",
        "jdbc:mysql://host:3306/db?useSSL=true",
        "me@example.org",
        "2024-01-31T12:00:00",
        "org.apache.kafka.common.serialization.StringSerializer",
        "true",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    ],
)
def test_values_without_secrets_are_shown_in_full(value: str) -> None:
    """Addresses, expressions, certificates."""
    assert [row.value for row in reported(environment("my.value", value))] == [value]
    assert setting_text(value) == value


def test_every_settings_object_masks_its_secrets() -> None:
    """In its `repr`, of the application's and all installed binders' settings."""
    types = ApplicationPlugins().binder_types()
    models: list[AnyModel] = [StreamSettings, *(group.model for group in GROUPS)]
    for name in types.names:
        models += [*types.extended_models(name), *types.settings_models(name).values()]
    for model in models:
        models += [field.shape.model for field in section_of(model).fields.values() if isinstance(field.shape, Section)]
    assert [model.__name__ for model in models if not issubclass(model, SettingsModel)] == []


def test_url_is_shown_without_its_password() -> None:
    """User and host stay readable."""
    rows = reported(environment("my.url", "amqp://me:hush@host:5672/vhost?a=b"))
    assert rows[0].value == "amqp://me:******@host:5672/vhost?a=b"


@pytest.mark.parametrize(("key", "value"), [("mail.smtp.auth", "true"), ("server.ssl.client-auth", "need")])
def test_switch_is_no_secret(key: str, value: str) -> None:
    """It says whether a login is needed, not with what."""
    assert reported(environment(key, value))[0].value == value


def test_commands_print_no_secret(tmp_path: Path) -> None:
    """Passwords of Kafka's clients, private keys, passwords in addresses; as tables and as JSON."""
    kafka_binder = "spring.cloud.stream.kafka.binder"
    (tmp_path / "application.properties").write_text(
        f"{kafka_binder}.configuration.basic.auth.user.info=me:hunter2\n"
        f"{kafka_binder}.configuration.passwd=hunter2\n"
        f"{kafka_binder}.consumer-properties.private-key=hunter2\n"
        "my.passwd=hunter2\nmy.private-key=hunter2\nbasic.auth.user.info=me:hunter2\n"
        "my.broker=amqp://me:hunter2@host\n"
        "spring.cloud.stream.bindings.in.group=g-hunter3\n"
    )
    for format_ in ([], ["--json"]):
        result = CliRunner().invoke(config, ["report", str(tmp_path), *format_], obj=PLUGINS)
        assert "hunter2" not in result.output
        assert "g-hunter3" in result.output
        assert "amqp://me:******@host" in result.output


@pytest.mark.parametrize("value", ["*hunter2", "!hunter2 x", '"\\xhunter2"', "{hunter2", "@hunter2", "[hunter2: 'x"])
def test_invalid_yaml_value_is_not_shown(value: str) -> None:
    """An unquoted password may begin like an alias or a tag: the error has its line and says to quote it."""
    with pytest.raises(ConfigurationError) as caught:
        parse_yaml(f"a: b\nmy.password: {value}\n", "application.yml")
    assert "hunter2" not in shown(caught.value)
    assert "application.yml:" in str(caught.value)


def test_invalid_escape_in_properties_is_not_shown() -> None:
    """Even four letters of a password are too many."""
    with TemporaryDirectory() as directory:
        (Path(directory) / "application.properties").write_text("a=b\nmy.password=\\uQ9Z7\n")
        with pytest.raises(ConfigurationError) as caught:
            Environment.load(directory=Path(directory), variables={})
    assert "Q9Z7" not in shown(caught.value)
    assert "application.properties:2" in str(caught.value)


@pytest.mark.parametrize(
    "piece",
    [
        "a-",
        "(a:",
        '"=',
        "a=",
        "password=",
        "://a:",
        "a:b@",
        "-----BEGIN PRIVATE KEY-----",
        "Bearer ",
        '"a":',
        "'",
        "@",
    ],
)
def test_masking_takes_linear_time(piece: str) -> None:
    """A text of 256 KiB is masked; quadratic time would exceed the test's timeout."""
    assert len(without_secrets(piece * (256 * 1024 // len(piece)))) > 0
