"""The settings of the RocketMQ binder, in the spellings of both generations of Spring Cloud Alibaba's.

::

    spring.cloud.stream.rocketmq.binder.*    RocketBinderProperties      binder_properties.py
    a consumer binding's own                 RocketConsumerProperties    consumer_properties.py
    a producer binding's own                 RocketProducerProperties    producer_properties.py
    what they have in common                 BindingProperties           here

A setting that says nothing more is honoured; `Accepted` ones mean nothing here and warn, `Rejected` ones stop the
start and say why.

Where the generations' defaults differ: sends wait for the broker's answer, the VIP channel is off, a producer's
group is its destination, 32 messages are pulled at once, and a message is redelivered as `Delivery` says.
"""

from typing import Annotated, Final

from pydantic import AfterValidator, Field

from rocket_client.namespace import Namespace
from rocket_remoting.wire.topics import validate_group
from streamkit.config.durations import Milliseconds, Positive
from streamkit.config.settings_model import SettingsModel
from streamkit.config.support import Accepted, Rejected

NOT_YET_SIGNED: Final = "requests are not signed: use a cluster without ACL"
NO_TRACE: Final = "no message trace is written"

PositiveMilliseconds = Annotated[Milliseconds, Positive]


def _legal_namespace(name: str) -> str:
    return Namespace(name).name


InNamespace = Annotated[str, AfterValidator(_legal_namespace)]


def legal_group(name: str | None) -> str | None:
    """Return the name of a group, if brokers accept it.

    Raises:
        ValueError: They do not.
    """
    if name is not None:
        validate_group(name)
    return name


class BindingProperties(SettingsModel):
    """What producers and consumers have in common; unset ones are the binder's."""

    name_server: Annotated[
        str | None,
        Rejected("a binding uses its binder's name server: configure a binder of its own under binders.*"),
    ] = None
    unit_name: str | None = None
    """Appended to the client id."""
    vip_channel_enabled: bool | None = None
    """Use the broker's second port, its port minus 2."""
    poll_name_server_interval: PositiveMilliseconds | None = None
    """How often routes are looked up again."""
    heartbeat_broker_interval: PositiveMilliseconds | None = None
    """How often brokers are told who is there."""
    access_key: Annotated[str | None, Rejected(NOT_YET_SIGNED)] = None
    secret_key: Annotated[str | None, Rejected(NOT_YET_SIGNED)] = None
    namespace: InNamespace | None = None
    """Put before the names of topics and groups at the broker."""
    use_tls: Annotated[bool, Rejected("connections are plain: remove it"), Field(alias="useTLS")] = False
    enable_msg_trace: Annotated[bool, Accepted(NO_TRACE)] = False
    customized_trace_topic: Annotated[str | None, Accepted(NO_TRACE)] = None
    access_channel: Annotated[str | None, Accepted(NO_TRACE)] = None
