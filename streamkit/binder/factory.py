"""Makes bindings from settings; wrong settings are errors before any binder connects."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from streamkit.binder.binder import (
    Binder,
    ConsumerDestination,
    ProducerBinding,
    ProducerDestination,
    TransactionalProducerBinding,
)
from streamkit.binder.binding import InputBinding, OutputBinding
from streamkit.binder.binding_settings import BindingSettings, topics_of
from streamkit.binder.capabilities import Capability, Requirement
from streamkit.binder.checked_binder import CheckedBinder, LocatedRequirement
from streamkit.binder.customizers import Customizers
from streamkit.binder.delivery import Delivery, ExtendedConsumerProperties, ExtendedProducerProperties
from streamkit.binder.error_channels import ErrorChannels, ErrorFunction
from streamkit.binder.error_handling import ErrorHandling
from streamkit.binder.keeping import KeptOutput, MakeKeeper, MessageKeeper
from streamkit.binder.local_transactions import LocalTransactions, TransactionHandlers
from streamkit.binder.named_objects import NamedObjects
from streamkit.binder.partitioners import ASKED_BY, partitioner_of
from streamkit.binder.permits import Permits
from streamkit.binder.registry import BinderRegistry
from streamkit.binder.sending import SendingHandler, Writer, keeping_unsent, reporting_loss, write_native
from streamkit.binder.tracing import MakeTracer, MessageTracer, TracedBinding, traced_producer, traced_target
from streamkit.binder.unread_settings import Side, UnreadSettings
from streamkit.config.environment import Environment
from streamkit.config.located_errors import located, setting_of
from streamkit.config.settings import BindingProperties, ConsumerProperties, StreamSettings
from streamkit.config.validation import Bound, not_in_memory
from streamkit.errors import ConfigurationError, ConfigurationErrors, MessageConversionError
from streamkit.messaging.channel import SubscribableChannel
from streamkit.messaging.converter import CompositeMessageConverter

if TYPE_CHECKING:
    from streamkit.binder.attempts import RetryPolicy
    from streamkit.binder.receiving import MessageReceiver
    from streamkit.binder.retry_policies import RetryPolicies
    from streamkit.binder.transactional_sending import TransactionalSendingHandler

# Receivers are imported for the first input and transactions for the first transactional output, so that commands start
# faster.

__all__ = ["BindingFactory", "NewDestination"]

E = TypeVar("E", ExtendedConsumerProperties, ExtendedProducerProperties)


class NewDestination(msgspec.Struct):
    """An output binding that is about to be made for a message that was sent to its name; its settings can be replaced.

    Attributes:
        name: The name to which the message was sent.
        channel: The binding's channel; no message has been sent through it yet.
        properties: The binding's settings. They can be replaced, for example by
            ``properties.model_copy(update={...})`` with another destination.
        extended: The binder's extended producer properties. They can be replaced in the same way.
    """

    name: str
    channel: SubscribableChannel
    properties: BindingProperties
    extended: ExtendedProducerProperties


class BindingFactory:
    """Makes the bindings of one application.

    Attributes:
        settings: The settings of the bindings.
        has_retry_policy: Whether code gives a retry policy for all bindings that name none.
        transactions: The transaction listeners.
    """

    def __init__(
        self,
        owner: object,
        settings: Bound[StreamSettings],
        *,
        environment: Environment,
        registry: BinderRegistry,
        converter: CompositeMessageConverter,
        error_channels: ErrorChannels,
        named: NamedObjects,
        retry_policy: "RetryPolicy | None" = None,
        customizers: Customizers | None = None,
        make_keeper: MakeKeeper | None = None,
        make_tracer: MakeTracer | None = None,
    ) -> None:
        """Make a factory.

        Args:
            owner: The application, for events.
            settings: `spring.cloud.stream.*`.
            environment: All settings.
            registry: The binders.
            converter: Converts payloads.
            error_channels: Receive the errors of bindings.
            named: The registered objects, which settings name.
            retry_policy: The policy of bindings that name no policy; it replaces their settings.
            customizers: Change consumers and producers before they start.
            make_keeper: Makes the keepers of output bindings; None for no keepers.
            make_tracer: Makes the tracers of bindings; None for no tracers.
        """
        self._owner = owner
        self._make_keeper = make_keeper
        self._make_tracer = make_tracer
        self.settings = BindingSettings(settings, environment.files)
        self._environment = environment
        self._registry = registry
        self._unread = UnreadSettings(environment, registry.types)
        self._converter = converter
        self._errors = ErrorHandling(error_channels)
        self._named = named
        self.has_retry_policy = retry_policy is not None
        self._retry_policy = retry_policy
        self._policies: RetryPolicies | None = None
        self._customizers = customizers or Customizers()
        self.transactions = LocalTransactions(named)

    def find_error_handlers(self, prepare: Callable[[Callable[..., object]], ErrorFunction]) -> None:
        """Look up the functions of ``error-handler-definition``; called before any binding is made.

        Args:
            prepare: Makes a coroutine function of a function, which may be synchronous.

        Raises:
            ConfigurationErrors: There are no functions of those names, or they do not take an error message.
        """
        wrong: list[ConfigurationError] = []
        for at, value in self.settings.origins.items():
            if at[-1] != "error_handler_definition":
                continue
            name = str(value)
            try:
                function = self._named.find(name, "a function of an ErrorMessage", _callable)
                self._errors.functions[name] = prepare(function)
            except (LookupError, ConfigurationError) as error:
                wrong.append(located(value, error))
        if wrong:
            raise ConfigurationErrors(wrong)

    def check_defaults(self) -> None:
        """Check the default settings of the binder types that no binding uses; called when all bindings are made.

        Raises:
            ConfigurationErrors: Settings that decide about deliveries would be ignored.
        """
        self._unread.check_defaults()

    def output(
        self,
        name: str,
        channel: SubscribableChannel,
        binder: str | None = None,
        configure: Callable[[NewDestination], object] | None = None,
    ) -> OutputBinding:
        """Return an output binding, which is not bound yet.

        Args:
            name: The binding's name.
            channel: The channel to which the application sends.
            binder: The binder's name, or None for the binder of the settings.
            configure: May replace the binding's settings, or None.

        Raises:
            ConfigurationError: The binding's settings are wrong.
        """
        properties = self.settings.properties(name)
        chosen = self._binder(name, binder or properties.binder)
        extended = self._environment.explain_extended(
            chosen.extended_type, name, "producer", chosen.producer_properties
        )
        self._check_unread(name, Side.PRODUCER, chosen, extended)
        if configure is not None:
            new = NewDestination(name, channel, properties, extended.value)
            configure(new)
            properties, extended = new.properties, replace(extended, value=new.extended)
        topic = properties.destination or name
        report = self._errors.of_producer(name, topic, properties)
        destination = ProducerDestination(
            topic,
            name,
            properties.producer,
            extended.value,
            reporting_loss(self._owner, name, report),
            customizers=self._customizers.producer,
        )
        with self.settings.located(name):
            chosen.check_producer(destination)
            partitioner = partitioner_of(properties.producer, self._named, extended.value.message_selector)
        write = self._writer(name, properties)
        handlers = self._transaction_handlers(topic, chosen, extended)
        keeper: MessageKeeper | None = None
        if handlers is not None:
            destination = replace(destination, checker=self.transactions.checker(handlers))
        elif self._make_keeper is not None:
            output = KeptOutput(name, topic, chosen.is_local, destination.on_failure, self._environment, self._named)
            keeper = self._make_keeper(self._owner, output)
            if keeper is not None:
                unsent = keeping_unsent(self._owner, name, keeper, destination.on_failure)
                destination = replace(destination, on_failure=unsent)
        tracer = self._tracer(TracedBinding(name, topic, None, False, chosen.type))

        def make_sender(producer: ProducerBinding) -> "SendingHandler | TransactionalSendingHandler":
            producer = traced_producer(producer, tracer)
            plain = SendingHandler(
                self._owner,
                name,
                producer if keeper is None else keeper.producer(producer),
                chosen.capabilities(),
                write,
                key=extended.value.message_key,
                partitioner=partitioner,
                partition_count=properties.producer.partition_count,
                on_failure=report if properties.producer.error_channel_enabled else None,
            )
            if handlers is not None and isinstance(producer, TransactionalProducerBinding):
                from streamkit.binder.transactional_sending import TransactionalSendingHandler

                return TransactionalSendingHandler(name, producer, plain, handlers.execute, self.transactions.open)
            return plain

        asked = [LocatedRequirement(requirement, extended.origins) for requirement in extended.value.requirements()]
        if partitioner is not None:
            partitioned = Requirement(Capability.PARTITION, ASKED_BY)
            asked.append(LocatedRequirement(partitioned, self.settings.origins_of(name)))
        ready = CheckedBinder(self._registry, chosen, name, asked)
        ready.refuse_impossible()
        return OutputBinding(self._owner, channel, destination, ready, make_sender, keeper=keeper)

    def _tracer(self, binding: TracedBinding) -> MessageTracer | None:
        return None if self._make_tracer is None else self._make_tracer(self._owner, binding)

    def input(
        self, name: str, channel: SubscribableChannel, *, manual: bool = False, polled: bool = False
    ) -> InputBinding:
        """Return an input binding, which is not bound yet.

        Args:
            name: The binding's name.
            channel: The channel to which the application's listeners are subscribed.
            manual: Whether a listener settles by hand.
            polled: Whether the application polls the binding; its channel receives no messages then.

        Raises:
            ConfigurationError: The binding's settings are wrong.
        """
        properties = self.settings.properties(name)
        binder = self._binder(name, properties.binder)
        extended = self._environment.explain_extended(
            binder.extended_type, name, "consumer", binder.consumer_properties
        )
        self._check_unread(name, Side.CONSUMER, binder, extended)
        delivery = extended.value.delivery()
        if polled:
            delivery = self._polled_delivery(name, properties.consumer, extended)
        from streamkit.binder.failure_log import FailureLog
        from streamkit.binder.header_modes import reading_in

        policy = self._retry_policies().of(name, properties.consumer)
        kind = _receiver_kind(properties.consumer, polled=polled)
        consumers = []
        topics = topics_of(properties.destination or name)
        shared = Permits(properties.consumer.concurrency) if properties.consumer.multiplex else None
        concurrency = properties.consumer.concurrency
        if binder.multiplexes:
            # The one consumer has as many permits as the consumers of all destinations would have together.
            concurrency *= len(topics)
            topics = [",".join(topics)]
        for topic in topics:
            permits = shared or Permits(concurrency)
            destination = ConsumerDestination(
                topic,
                properties.group or None,
                name,
                properties.consumer,
                extended.value,
                delivery,
                permits,
                _or_global(properties.consumer.instance_index, self.settings.stream.instance_index),
                _or_global(properties.consumer.instance_count, self.settings.stream.instance_count),
                customizers=self._customizers.consumer,
            )
            tracer = self._tracer(TracedBinding(name, topic, destination.group, True, binder.type))
            receiver = kind(
                self._owner,
                name,
                reading_in(properties.consumer.header_mode, traced_target(channel.sending, tracer)),
                delivery,
                policy,
                permits=permits,
                on_error=self._errors.of_consumer(binder, topic, properties),
                log=FailureLog(name, topic, destination.group, binder, binder.dead_letter_destination(destination)),
                manual=manual,
            )
            if polled:
                from streamkit.binder.polled import PolledReceiver

                assert isinstance(receiver, PolledReceiver)
                receiver.tracer = tracer
            with self.settings.located(name):
                binder.check_consumer(destination)
            consumers.append((destination, receiver))
        asked = [LocatedRequirement(requirement, extended.origins) for requirement in extended.value.requirements()]
        if properties.consumer.batch_mode:
            batches = Requirement(Capability.BATCH, ("consumer.batch-mode",))
            asked.append(LocatedRequirement(batches, self.settings.origins_of(name)))
        if polled:
            asked.append(
                LocatedRequirement(Requirement(Capability.POLLED, ("pollable-source",)), self.settings.origins)
            )
        ready = CheckedBinder(self._registry, binder, name, asked)
        ready.refuse_impossible()
        return InputBinding(self._owner, name, channel, consumers, ready)

    def _retry_policies(self) -> "RetryPolicies":
        if self._policies is None:
            from streamkit.binder.retry_policies import RetryPolicies

            self._policies = RetryPolicies(self.settings, self._named, self._retry_policy)
        return self._policies

    def _polled_delivery(
        self, name: str, properties: ConsumerProperties, extended: Bound[ExtendedConsumerProperties]
    ) -> Delivery:
        """Return the terms of a polled binding: messages are taken one by one, in any order.

        Raises:
            ConfigurationError: A setting asks for batch mode or for the order.
        """
        reason = f"binding {name!r} is polled, so it takes one message at a time, in any order: "
        if properties.batch_mode:
            raise located(self.settings.origin(name, "consumer", "batch_mode"), f"{reason}remove batch-mode")
        delivery = extended.value.delivery()
        if not delivery.ordered:
            return delivery
        order = next(effect for effect in extended.value.effects() if effect.capability is Capability.ORDER)
        setting = setting_of(extended.origins, order.properties)
        if setting is not None:
            raise located(setting, f"{reason}set it to false for this binding, or remove it")
        return replace(delivery, ordered=False)  # ordered by default, as on Kafka

    def _check_unread(self, name: str, side: Side, binder: Binder, extended: Bound[E]) -> None:
        """Check the settings of other binder types; warn of settings that a binder in memory does not imitate."""
        self._unread.check(name, side, binder, extended.value)
        if binder.extended_type != binder.type:
            self._environment.note(not_in_memory(extended))

    def _transaction_handlers(
        self, topic: str, binder: Binder, extended: Bound[ExtendedProducerProperties]
    ) -> TransactionHandlers | None:
        """Return the transaction handlers of a binding, or None if its settings ask for no transactions."""
        terms = extended.value.transaction()
        if terms is None:
            return None
        try:
            return self.transactions.find(binder.producer_group(topic, extended.value), terms.listener)
        except LookupError as error:
            raise located(setting_of(extended.origins, terms.asked_by), error) from error

    def _binder(self, binding: str, name: str | None) -> Binder:
        try:
            return self._registry.get(name)
        except ConfigurationError as error:
            value = self.settings.origin(binding, "binder")
            if value is None or type(error) is not ConfigurationError:
                raise
            raise located(value, error) from error

    def _writer(self, name: str, properties: BindingProperties) -> Writer:
        if properties.producer.use_native_encoding:
            return write_native
        try:
            write = self._converter.payload_writer(properties.content_type, place=f"binding {name!r}")
            if properties.producer.header_mode is None:
                return write
            from streamkit.binder.header_modes import writing_in

            return writing_in(properties.producer.header_mode, write)
        except MessageConversionError as error:
            raise located(self.settings.origin(name, "content_type"), error) from error


def _callable(found: object) -> Callable[..., object] | None:
    return found if callable(found) else None


def _receiver_kind(properties: ConsumerProperties, *, polled: bool) -> "type[MessageReceiver]":
    """Return the class of the receivers of an input."""
    if polled:
        from streamkit.binder.polled import PolledReceiver

        return PolledReceiver
    if properties.batch_mode:
        from streamkit.binder.batch_receiving import BatchMessageReceiver

        return BatchMessageReceiver
    from streamkit.binder.receiving import MessageReceiver

    return MessageReceiver


def _or_global(own: int, whole: int) -> int:
    return whole if own < 0 else own
