"""The settings of the RocketMQ binder, in the spellings of both generations of Spring Cloud Alibaba's binder.

::

    spring.cloud.stream.rocketmq.binder.*    RocketBinderProperties      binder_properties.py
    settings of consumer bindings            RocketConsumerProperties    consumer_properties.py
    settings of producer bindings            RocketProducerProperties    producer_properties.py
    settings of both                         BindingProperties           here

A setting without annotation is honoured. An `Accepted` setting is ignored with a warning. A `Rejected` setting is an
error, with which the application does not start.

The generations have different defaults. Here, sends wait for the broker's answer, the VIP channel is off, a producer's
group is its destination, a pull asks for 32 messages, and `Delivery` determines redeliveries.
"""

from typing import Annotated, Final

from rocket_client.namespace import Namespace
from rocket_remoting.wire.topics import validate_group
from streamkit.config.durations import Milliseconds, Positive
from streamkit.config.setting_limits import Accepted, NotInMemory, Rejected
from streamkit.config.setting_values import After
from streamkit.config.settings_model import SettingsModel, setting

NO_NAMESPACE: Final = "names stay as they are"
NO_TRACE: Final = "no message trace is written"
LOCAL_TRACE: Final = "message traces are written as with LOCAL, to one topic"

PositiveMilliseconds = Annotated[Milliseconds, Positive]


def _legal_namespace(name: str) -> str:
    return Namespace(name).name


InNamespace = Annotated[str, After(_legal_namespace)]


def _legal_group(name: str) -> str:
    validate_group(name)
    return name


Group = Annotated[str, After(_legal_group)]
"""The name of a group, which brokers must accept."""


class BindingProperties(SettingsModel):
    """Settings of producers and consumers; for an unset one, the binder's setting is used."""

    name_server: Annotated[
        str | None,
        Rejected("a binding uses its binder's name server: configure a binder of its own under binders.*"),
    ] = None
    unit_name: str | None = None
    """A name that is appended to the client id."""
    vip_channel_enabled: bool | None = None
    """Whether the broker's VIP port is used: its port minus 2."""
    poll_name_server_interval: PositiveMilliseconds | None = None
    """The time between two updates of the routes from the name servers."""
    heartbeat_broker_interval: PositiveMilliseconds | None = None
    """The time between two heartbeats to the brokers."""
    access_key: str | None = None
    """The access key of an account in the brokers' access control."""
    secret_key: str | None = None
    """The account's secret key. With both keys, all requests are signed."""
    namespace: Annotated[InNamespace | None, NotInMemory(NO_NAMESPACE)] = None
    """The namespace: a prefix of the names of topics and groups at the broker."""
    use_tls: Annotated[bool | None, setting(aliases=("useTLS",))] = None
    """Whether the connections of this binding are encrypted, with the certificates of `rocketmq.binder.tls`."""
    enable_msg_trace: Annotated[bool | None, NotInMemory(NO_TRACE)] = None
    """Whether a message trace is written of what this binding sends or its listener receives. Polled messages are not
    traced."""
    customized_trace_topic: Annotated[str | None, NotInMemory(NO_TRACE)] = None
    """The topic of the message trace. Setting it turns the trace on, unless `enable-msg-trace` says otherwise."""
    access_channel: Annotated[str | None, Accepted(LOCAL_TRACE)] = None
