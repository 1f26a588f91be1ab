"""Makes bindings out of settings; whatever is wrong with them is told before anything is connected."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TypeVar

from pydantic import BaseModel

from streamkit.binder.attempts import BackOff, RetryPolicy
from streamkit.binder.batch_receiving import BatchMessageReceiver
from streamkit.binder.binder import (
    Binder,
    ConsumerDestination,
    ProducerBinding,
    ProducerDestination,
    TransactionalProducerBinding,
)
from streamkit.binder.binding import InputBinding, OutputBinding, ReadyBinder
from streamkit.binder.capabilities import Capability, Requirement, describe, missing
from streamkit.binder.customizers import Customizers
from streamkit.binder.delivery import Delivery, ExtendedProducerProperties
from streamkit.binder.error_channels import (
    ErrorChannels,
    ErrorFunction,
)
from streamkit.binder.error_handling import ErrorHandling
from streamkit.binder.header_modes import reading_in, writing_in
from streamkit.binder.local_transactions import LocalTransactions, TransactionHandlers
from streamkit.binder.named_objects import NamedObjects
from streamkit.binder.partitioners import ASKED_BY, partitioner_of
from streamkit.binder.permits import Permits
from streamkit.binder.polled import PolledReceiver
from streamkit.binder.receiving import MessageReceiver
from streamkit.binder.registry import BinderRegistry
from streamkit.binder.retryable import exception_classes
from streamkit.binder.sending import SendingHandler, Writer, write_native
from streamkit.binder.transactional_sending import TransactionalSendingHandler
from streamkit.config.environment import Environment
from streamkit.config.origin import Value
from streamkit.config.relaxed import uniform
from streamkit.config.settings import (
    PREFIX,
    BindingProperties,
    ConsumerProperties,
    StreamSettings,
)
from streamkit.config.shape import Location
from streamkit.config.validation import Bound
from streamkit.errors import (
    ConfigurationError,
    ConfigurationErrors,
    MessageConversionError,
    UnsupportedCapability,
)
from streamkit.messaging.channel import SubscribableChannel
from streamkit.messaging.converter import CompositeMessageConverter

__all__ = ["BindingFactory", "NewDestination"]

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A requirement with the settings that asked for it."""

    requirement: Requirement
    origins: Mapping[Location, Value]

    def refused(self, binding: str, binder: Binder) -> UnsupportedCapability:
        """The error for a binder that does not meet it."""
        setting = _setting(self.origins, self.requirement.properties)
        capability = self.requirement.capability.value
        where = f"{setting.origin}: {setting.key}={setting}" if setting else f"binding {binding!r}"
        return UnsupportedCapability(
            f"{where} asks for {capability}, which binder {binder.name!r} of type {binder.type!r} cannot do; "
            f"it can: {describe(binder.capabilities())}",
            key=setting.key if setting else None,
            value=setting.value if setting else None,
            origin=str(setting.origin) if setting else None,
        )


class _CheckedBinder(ReadyBinder):
    """Starts the binder of one binding and asks it whether it can do what the settings ask."""

    def __init__(
        self, registry: BinderRegistry, binder: Binder, binding: str, asked: Sequence[_Asked]
    ) -> None:
        self.binder = binder
        self._registry = registry
        self._binding = binding
        self._asked = asked

    async def get(self) -> Binder:
        binder = await self._registry.started(self.binder)
        lacking = missing((each.requirement for each in self._asked), binder.capabilities())
        for each in self._asked:
            if each.requirement in lacking:
                raise each.refused(self._binding, binder)
        return binder

    def located(self, error: ConfigurationError) -> ConfigurationError:
        if error.key is None or error.origin is not None:
            return error
        for each in self._asked:
            setting = _setting(each.origins, [error.key])
            if setting is not None:
                return located(setting, error)
        return error


@dataclass(slots=True)
class NewDestination:
    """An output binding that is about to be made because somebody sends to its name; its settings can be replaced.

    Attributes:
        name: What was sent to.
        channel: The binding's channel, nothing is sent to yet.
        properties: Its settings; another destination or producer's settings may be put in their place, with
            ``properties.model_copy(update={...})``.
        extended: The binder's own settings of it, likewise.
    """

    name: str
    channel: SubscribableChannel
    properties: BindingProperties
    extended: ExtendedProducerProperties


class BindingFactory:
    """Makes the bindings of one application.

    Attributes:
        transactions: Who answers for local transactions.
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
        retry_policy: RetryPolicy | None = None,
        customizers: Customizers | None = None,
    ) -> None:
        """Make a factory.

        Args:
            owner: The application, for events.
            settings: `spring.cloud.stream.*`.
            environment: All settings.
            registry: The binders.
            converter: Converts payloads.
            error_channels: Where failures are told.
            named: What settings name.
            retry_policy: For the bindings that name none, in place of their settings.
            customizers: Called with what binders make, before it starts.
        """
        self._owner = owner
        self._bound = settings
        self._settings = settings.value
        self._environment = environment
        self._registry = registry
        self._converter = converter
        self._errors = ErrorHandling(error_channels)
        self._named = named
        self._retry_policy = retry_policy
        self._customizers = customizers or Customizers()
        self.transactions = LocalTransactions(named)

    def find_error_handlers(self, prepare: Callable[[Callable[..., object]], ErrorFunction]) -> None:
        """Look up the functions that settings name as error handlers; before any binding is made.

        Args:
            prepare: Makes a coroutine function of one, wherever it runs.

        Raises:
            ConfigurationErrors: There are none of those names, or they do not take an error message.
        """
        wrong: list[ConfigurationError] = []
        for at, value in self._bound.origins.items():
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

    @property
    def configured(self) -> Iterable[str]:
        """The names of the bindings that settings configure."""
        listed = self._settings.source, self._settings.output_bindings, self._settings.input_bindings
        return [*self._settings.bindings, *(name for names in listed for name in names)]

    def is_configured(self, name: str) -> bool:
        """Return whether settings configure a binding of that name, in any case."""
        return any(uniform(known) == uniform(name) for known in self.configured)

    def properties(self, name: str) -> BindingProperties:
        """Return the settings of a binding."""
        return self._settings.binding(name)

    def unknown(self, name: str, who: str, declared: Iterable[str]) -> ConfigurationError:
        """Return the error for a binding nobody configured or declared."""
        known = sorted({*self.configured, *declared})
        near = get_close_matches(name, known, n=1)
        return ConfigurationError(
            f"{who} names binding {name!r}, which does not exist"
            + (f"; did you mean {near[0]!r}?" if near else ".")
            + f" Known bindings: {', '.join(known) or 'none'}. Configure it with "
            f"{PREFIX}.bindings.{name}.destination=<topic>, or declare it with enable_binding.",
            value=name,
            suggestion=near[0] if near else None,
        )

    def output(
        self,
        name: str,
        channel: SubscribableChannel,
        binder: str | None = None,
        configure: Callable[[NewDestination], object] | None = None,
    ) -> OutputBinding:
        """Return the output binding of that name, not bound yet.

        Args:
            name: The binding's name.
            channel: What the application sends to.
            binder: The binder's name, if not the one of the settings.
            configure: May change the binding's settings.

        Raises:
            ConfigurationError: Its settings are wrong.
        """
        properties = self.properties(name)
        chosen = self._binder(name, binder or properties.binder)
        extended = self._environment.explain_extended(
            chosen.extended_type, name, "producer", chosen.producer_properties
        )
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
            report,
            customizers=self._customizers.producer,
        )
        with self._located(name):
            chosen.check_producer(destination)
            partitioner = partitioner_of(properties.producer, self._named, extended.value.message_selector)
        write = self._writer(name, properties)
        handlers = self._transaction_handlers(topic, chosen, extended)
        if handlers is not None:
            destination = replace(destination, checker=self.transactions.checker(handlers))

        def make_sender(producer: ProducerBinding) -> SendingHandler | TransactionalSendingHandler:
            plain = SendingHandler(
                self._owner,
                name,
                producer,
                chosen.capabilities(),
                write,
                partitioner=partitioner,
                partition_count=properties.producer.partition_count,
                on_failure=report if properties.producer.error_channel_enabled else None,
            )
            if handlers is not None and isinstance(producer, TransactionalProducerBinding):
                return TransactionalSendingHandler(
                    name, producer, plain, handlers.execute, self.transactions.open
                )
            return plain

        asked = [_Asked(requirement, extended.origins) for requirement in extended.value.requirements()]
        if partitioner is not None:
            partitioned = Requirement(Capability.PARTITION, ASKED_BY)
            asked.append(_Asked(partitioned, self._origins_of(name)))
        ready = _CheckedBinder(self._registry, chosen, name, asked)
        return OutputBinding(self._owner, channel, destination, ready, make_sender)

    def input(
        self, name: str, channel: SubscribableChannel, *, manual: bool = False, polled: bool = False
    ) -> InputBinding:
        """Return the input binding of that name, not bound yet.

        Args:
            name: The binding's name.
            channel: What the application's listeners are subscribed to.
            manual: Whether one of them settles by hand.
            polled: Whether the application polls it; nothing comes to its channel then.

        Raises:
            ConfigurationError: Its settings are wrong.
        """
        properties = self.properties(name)
        binder = self._binder(name, properties.binder)
        extended = self._environment.explain_extended(
            binder.extended_type, name, "consumer", binder.consumer_properties
        )
        delivery = extended.value.delivery()
        policy = self._policy(name, properties.consumer)
        kind = _receiver_kind(name, properties.consumer, delivery, polled)
        consumers = []
        topics = topics_of(properties.destination or name)
        shared = Permits(properties.consumer.concurrency) if properties.consumer.multiplex else None
        concurrency = properties.consumer.concurrency
        if binder.multiplexes:
            # One consumer has what the consumers of all destinations would have.
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
                _or_global(properties.consumer.instance_index, self._settings.instance_index),
                _or_global(properties.consumer.instance_count, self._settings.instance_count),
                customizers=self._customizers.consumer,
            )
            receiver = kind(
                self._owner,
                name,
                reading_in(properties.consumer.header_mode, channel.asend),
                delivery,
                policy,
                permits=permits,
                on_error=self._errors.of_consumer(binder, topic, properties),
                manual=manual,
            )
            with self._located(name):
                binder.check_consumer(destination)
            consumers.append((destination, receiver))
        asked = [_Asked(requirement, extended.origins) for requirement in extended.value.requirements()]
        if properties.consumer.batch_mode:
            batches = Requirement(Capability.BATCH, ("consumer.batch-mode",))
            asked.append(_Asked(batches, self._origins_of(name)))
        if polled:
            asked.append(_Asked(Requirement(Capability.POLLED, ("pollable-source",)), self._bound.origins))
        ready = _CheckedBinder(self._registry, binder, name, asked)
        return InputBinding(self._owner, name, channel, consumers, ready)

    def _transaction_handlers(
        self, topic: str, binder: Binder, extended: Bound[ExtendedProducerProperties]
    ) -> TransactionHandlers | None:
        """Who answers for the transactions of a binding; None where its settings ask for none."""
        terms = extended.value.transaction()
        if terms is None:
            return None
        try:
            return self.transactions.find(binder.producer_group(topic, extended.value), terms.listener)
        except LookupError as error:
            raise located(_setting(extended.origins, terms.asked_by), error) from error

    @contextmanager
    def _located(self, name: str) -> Iterator[None]:
        """Tell, with an error about a binding, the place of the setting below it that the error names."""
        try:
            yield
        except ConfigurationError as error:
            value = self._origin(name, *error.key.split(".")) if error.key else None
            if value is None:
                raise ConfigurationError(f"binding {name!r}: {error}", key=error.key) from error
            raise located(value, error) from error

    def _binder(self, binding: str, name: str | None) -> Binder:
        try:
            return self._registry.get(name)
        except ConfigurationError as error:
            value = self._origin(binding, "binder")
            if value is None or type(error) is not ConfigurationError:
                raise
            raise located(value, error) from error

    def _policy(self, name: str, properties: ConsumerProperties) -> RetryPolicy:
        policy = self._named_policy(name, properties.retry_template_name)
        if policy is not None:
            return policy if properties.max_attempts > 1 else replace(policy, max_attempts=1)
        try:
            retryable = exception_classes(properties.retryable_exceptions)
        except LookupError as error:
            wrong = str(error).split("'")[1] if "'" in str(error) else ""
            value = self._origin(name, "consumer", "retryable_exceptions", wrong)
            raise located(value, error) from error
        return RetryPolicy(
            properties.max_attempts,
            BackOff(
                properties.back_off_initial_interval.total_seconds(),
                properties.back_off_multiplier,
                properties.back_off_max_interval.total_seconds(),
            ),
            retryable,
            properties.default_retryable,
        )

    def _named_policy(self, binding: str, name: str | None) -> RetryPolicy | None:
        if name is None:
            return self._retry_policy
        try:
            return self._named.find(name, "a RetryPolicy", _retry_policy)
        except LookupError as error:
            raise located(self._origin(binding, "consumer", "retry_template_name"), error) from error

    def _writer(self, name: str, properties: BindingProperties) -> Writer:
        if properties.producer.use_native_encoding:
            return write_native
        try:
            write = self._converter.payload_writer(properties.content_type, place=f"binding {name!r}")
            return writing_in(properties.producer.header_mode, write)
        except MessageConversionError as error:
            raise located(self._origin(name, "content_type"), error) from error

    def _origins_of(self, name: str) -> dict[Location, Value]:
        """Where the settings of one binding come from, by their place below the binding."""
        return {
            at[2:]: value
            for at, value in self._bound.origins.items()
            if at[0] == "bindings" and uniform(str(at[1])) == uniform(name)
        }

    def _origin(self, name: str, *rest: str) -> Value | None:
        return self._origins_of(name).get(rest)


def _setting(origins: Mapping[Location, Value], properties: Iterable[str]) -> Value | None:
    """Return the first value that was set under one of these spellings."""
    spellings = {tuple(map(uniform, text.split("."))) for text in properties}
    return next(
        (value for at, value in origins.items() if tuple(uniform(str(step)) for step in at) in spellings),
        None,
    )


def topics_of(destination: str) -> list[str]:
    """Return the destinations of a setting that may list several, separated by commas."""
    return [topic for topic in map(str.strip, destination.split(",")) if topic]


def located(value: Value | None, error: Exception) -> ConfigurationError:
    """Return ``error`` with the place of the setting that caused it."""
    if value is None:
        return ConfigurationError(str(error))
    return ConfigurationError(
        f"{value.origin}: {value.key}={value}: {error}",
        key=value.key,
        value=value.value,
        origin=str(value.origin),
    )


def _callable(found: object) -> Callable[..., object] | None:
    return found if callable(found) else None


def _retry_policy(found: object) -> RetryPolicy | None:
    return found if isinstance(found, RetryPolicy) else None


def _receiver_kind(
    name: str, properties: ConsumerProperties, delivery: Delivery, polled: bool
) -> type[MessageReceiver]:
    """What runs the messages of an input."""
    if not polled:
        return BatchMessageReceiver if properties.batch_mode else MessageReceiver
    if properties.batch_mode or delivery.ordered:
        raise ConfigurationError(
            f"binding {name!r} is polled, so it takes one message at a time, in any order: remove its "
            + ("batch-mode" if properties.batch_mode else "ordered mode")
        )
    return PolledReceiver


def _or_global(own: int, whole: int) -> int:
    return whole if own < 0 else own
