"""`Binder.examine` of Kafka's binder without a broker; on a real one it is tested by `test_kafka_doctor`."""

import asyncio
import socket

from binders.kafka.examination import check_addresses
from streamkit.binder.binding import Binding
from streamkit.binder.examination import examine_bindings
from streamkit.config.environment import Environment
from streamkit.findings import Finding, Severity
from streamkit.plugins.application_plugins import ApplicationPlugins
from streamkit.running.rehearsal import rehearse_settings
from tests.unit.binders.kafka.silent_broker import answering, refuse_mechanism

STREAM = "spring.cloud.stream"
LOGIN = {
    "kafka__binder__configuration__security__protocol": "SASL_PLAINTEXT",
    "kafka__binder__configuration__sasl__mechanism": "PLAIN",
    "kafka__binder__configuration__sasl__plain__username": "cook",
    "kafka__binder__configuration__sasl__plain__password": "secret",
}


def bindings(**settings: str) -> list[Binding]:
    """Return the bindings of these settings of an application on Kafka, given below `spring.cloud.stream`."""
    overrides = {f"{STREAM}.default-binder": "kafka"}
    overrides |= {f"{STREAM}.{key.replace('__', '.')}": value for key, value in settings.items()}
    environment = Environment.load(config_location="optional:/none", overrides=overrides, variables={})
    rehearsed = rehearse_settings(environment, ApplicationPlugins())
    assert not rehearsed.problems
    return list(rehearsed.bindings)


def examined(*brokers: str, answer_within: float = 60, **settings: str) -> list[Finding]:
    """Return what is found about an application with an input and an output on these brokers."""
    made = bindings(
        kafka__binder__brokers=",".join(brokers),
        bindings__in__group="kitchen",
        bindings__out__producer__partition_count="2",
        **settings,
    )
    assert sorted(each.name for each in made) == ["in", "out"]
    return asyncio.run(examine_bindings(made, watch=0, answer_within=answer_within))


def test_each_address_at_which_nothing_listens_is_an_error() -> None:
    """Each address is tried once, for all bindings; an address whose port is no number is an error, too."""
    first, second = examined("127.0.0.1:1", "localhost:none")
    assert {first.severity, second.severity} == {Severity.ERROR}
    assert (first.about, second.about) == (("127.0.0.1:1",), ("localhost:none",))
    assert first.found.startswith("Kafka broker 127.0.0.1:1 cannot be reached from here: Connection refused")
    assert first.mend == "start it, or correct spring.cloud.stream.kafka.binder.brokers"


def test_server_that_never_answers_is_an_error() -> None:
    """Something listens, so its address is none."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert asyncio.run(check_addresses([address], "", 60)) == {address: None}
        findings = examined(address, answer_within=0.1)
    assert [each.severity for each in findings] == [Severity.ERROR]


def test_brokers_that_refuse_the_client_are_an_error_with_the_setting() -> None:
    """Not one of the address."""
    with answering(refuse_mechanism) as address:
        (refused,) = examined(address, **LOGIN)
    assert (refused.severity, refused.about) == (Severity.ERROR, ("kafka",))
    assert "kafka.binder.configuration.sasl.mechanism: the brokers do not support the mechanism PLAIN" in refused.found


def test_bindings_that_a_function_may_not_have_are_not_examined() -> None:
    """A consumer has no output, and a supplier no input: settings alone do not tell which of them it is."""
    made = bindings(function__definition="cook", bindings__cook_in_0__destination="orders")
    assert [each.name for each in made] == ["cook-in-0"]
