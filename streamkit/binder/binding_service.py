"""The bindings of one run of an application: they are bound in order, retried, and unbound.

::

    start    1. all binders start at once, and their capabilities are checked against the settings; the bindings of a
                slow binder are bound when it has started
             2. outputs are bound, then inputs, so a listener can send from its first message on
             3. bindings whose system cannot be reached are retried every binding-retry-interval
    stop     inputs, then outputs, then binders
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from weakref import WeakValueDictionary

from streamkit.binder.binding import Binding, InputBinding, OutputBinding
from streamkit.binder.factory import BindingFactory, NewDestination
from streamkit.binder.registry import BinderRegistry
from streamkit.config.relaxed import uniform
from streamkit.config.settings import PREFIX, StreamSettings
from streamkit.errors import ApplicationError, BinderUnavailable, ConfigurationError, ConfigurationErrors
from streamkit.events import binding_failed, notify
from streamkit.messaging.channel import SubscribableChannel

__all__ = ["BindingService"]

logger = logging.getLogger(__name__)

MakeChannel = Callable[[str], SubscribableChannel]

LATE_SECONDS = 3.0
"""Seconds that a start waits for the other binders after the first has answered; the bindings of slower binders are
bound when these answer."""

_Answers = dict[Binding, BinderUnavailable | ConfigurationError | None]
"""For each binding, the error of starting and checking its binder, or None if it can be bound."""


class BindingService:
    """Starts and stops the bindings of an application.

    Attributes:
        bindings: The bindings of listeners, interfaces and settings, by name.
        factory: Makes bindings.
        on_new_destination: Called before an output binding is made for a message that is sent to its name; may be None.
    """

    def __init__(
        self, owner: object, settings: StreamSettings, registry: BinderRegistry, factory: BindingFactory
    ) -> None:
        self.bindings: dict[str, Binding] = {}
        self.on_new_destination: Callable[[NewDestination], object] | None = None
        self._by_uniform_name: dict[str, Binding] = {}
        self.factory = factory
        self._owner = owner
        self._settings = settings
        self._registry = registry
        self._retries: set[asyncio.Task[None]] = set()
        # Output bindings made for sends by name while the application runs, least recently used first.
        self._dynamic: OrderedDict[tuple[str, str | None], OutputBinding] = OrderedDict()
        # A lock for each of those names, held while its binding is bound or unbound, so that other names do not wait.
        self._changing: WeakValueDictionary[tuple[str, str | None], asyncio.Lock] = WeakValueDictionary()
        # During a stop new inputs are refused first (_is_stopping), then new outputs, too (_is_closed).
        self._is_stopping = False
        self._is_closed = False

    @property
    def inputs(self) -> Sequence[InputBinding]:
        """The input bindings."""
        return [binding for binding in self.bindings.values() if isinstance(binding, InputBinding)]

    @property
    def outputs(self) -> Sequence[OutputBinding]:
        """The output bindings."""
        return [binding for binding in self.bindings.values() if isinstance(binding, OutputBinding)]

    @property
    def dynamic(self) -> Sequence[OutputBinding]:
        """The output bindings made for sends by name while the application runs, least recently used first."""
        return list(self._dynamic.values())

    def add(self, binding: Binding) -> None:
        """Add a binding, to be bound by :meth:`start`."""
        self.bindings[binding.name] = binding
        self._by_uniform_name[uniform(binding.name)] = binding

    def find(self, name: str) -> Binding | None:
        """Return the binding of that name, in any case, or None."""
        return self._by_uniform_name.get(uniform(name))

    async def start(self) -> None:
        """Bind all bindings with `auto-startup`.

        Raises:
            ConfigurationError: A setting asks what its binder cannot do.
            ConfigurationErrors: Several settings do; it contains all errors.
            BinderUnavailable: A system cannot be reached, and `binding-retry-interval` is zero.
            BinderError: A system refused.
        """
        # Outputs first: as soon as an input is bound, its listener may be called, and may send.
        await self._bind([*self.outputs, *self.inputs])

    async def launch(self, binding: OutputBinding | InputBinding) -> None:
        """Add one more binding, and bind it if it has `auto-startup`; raise the errors of :meth:`start`, too.

        Raises:
            ApplicationError: The application stops.
        """
        self.add(binding)
        try:
            is_input = isinstance(binding, InputBinding)
            self._refuse(binding.name, self._is_stopping if is_input else self._is_closed)
            await self._bind([binding])
        except BaseException:
            del self.bindings[binding.name], self._by_uniform_name[uniform(binding.name)]
            raise

    async def _bind(self, bindings: Iterable[OutputBinding | InputBinding]) -> None:
        starting = [binding for binding in bindings if self._starts(binding)]
        answers, late = await self._ask(starting)
        # All bindings before the first is bound: a listener may send to an output that is bound later, and gets an
        # error that says so.
        for expected in starting:
            expected.expect()
        for asked, of_binder in late.items():
            self._bind_later(asked, of_binder)
        for binding in starting:
            if binding in answers:
                await self._bind_or_retry(binding, is_away=answers[binding] is not None)

    async def _bind_or_retry(self, binding: Binding, *, is_away: bool) -> None:
        if is_away or not await self._try(binding):
            self._retry_later(binding)

    def _starts(self, binding: Binding) -> bool:
        properties = self.factory.settings.properties(binding.name)
        if isinstance(binding, InputBinding):
            return properties.consumer.auto_startup and binding.starts
        return properties.producer.auto_startup

    async def _ask(
        self, bindings: Sequence[OutputBinding | InputBinding]
    ) -> "tuple[_Answers, dict[asyncio.Task[_Answers], list[OutputBinding | InputBinding]]]":
        """Start every binder and check its capabilities, all at once.

        ::

            binder a   |---| answers
            binder b   |----------------------------------| answers late: its bindings are bound now
            the start  |---|----- LATE_SECONDS -----| goes on: the bindings of a are bound

        A slow binder delays only its own bindings. With `binding-retry-interval=0` all binders are awaited, because a
        system that cannot be reached has to fail the start.

        Returns:
            The answers for the bindings of binders in time, and the tasks of the late binders with their bindings.
        """
        of_binder: dict[str, list[OutputBinding | InputBinding]] = {}
        for binding in bindings:
            of_binder.setdefault(binding.binder.binder.name, []).append(binding)
        tasks = {
            asyncio.create_task(_answers_of(asked), name=f"ask binder {name}"): asked
            for name, asked in of_binder.items()
        }
        try:
            if tasks:
                # LATE_SECONDS begin with the first answer: an application with a single binder has nothing else to
                # start, so it waits.
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                is_patient = self._settings.binding_retry_interval.total_seconds() <= 0
                await asyncio.wait(tasks, timeout=None if is_patient else LATE_SECONDS)
            answers: _Answers = {}
            for task in tasks:
                if task.done():
                    answers |= task.result()
            _raise_errors([answers[binding] for binding in bindings if binding in answers])
            for binding in bindings:
                if isinstance(error := answers.get(binding), BinderUnavailable):
                    self._failed(binding, error)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise
        return answers, {task: asked for task, asked in tasks.items() if not task.done()}

    async def _try(self, binding: Binding) -> bool:
        """Bind; return False if the system cannot be reached."""
        try:
            await binding.start()
        except BinderUnavailable as error:
            self._failed(binding, error)
            return False
        return True

    def _bind_later(self, asked: "asyncio.Task[_Answers]", bindings: Sequence[Binding]) -> None:
        binder = bindings[0].binder.binder.name
        names = ", ".join(repr(binding.name) for binding in bindings)
        logger.warning(
            "Binder %r has not answered within %g s: %s will be bound when it does",
            binder,
            LATE_SECONDS,
            names,
        )
        for binding in bindings:
            binding.await_answer()
        self._keep(asyncio.create_task(self._bind_answered(asked, bindings), name=f"await binder {binder}"))

    async def _bind_answered(self, asked: "asyncio.Task[_Answers]", bindings: Sequence[Binding]) -> None:
        """Bind the bindings of a late binder when it has answered."""
        try:
            for binding in bindings:
                try:
                    error = (await asked)[binding]
                    if isinstance(error, ConfigurationError):
                        raise error
                    if error is not None:
                        self._failed(binding, error)
                    if binding.is_expected:
                        await self._bind_or_retry(binding, is_away=error is not None)
                except Exception as failure:
                    self._give_up(binding, failure)
                binding.answered()
        finally:
            for binding in bindings:
                binding.answered()
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    def _give_up(self, binding: Binding, error: Exception) -> None:
        """Note that the binding cannot be bound, log it, and send the event `binding_failed`; do not retry."""
        binding.give_up(error)
        logger.error("Binding %r cannot be bound; binding it again would fail as well", binding.name, exc_info=error)
        if binding_failed.receivers:
            notify(binding_failed, self._owner, binding=binding.name, error=error)

    def _keep(self, task: "asyncio.Task[None]") -> None:
        self._retries.add(task)
        task.add_done_callback(self._retries.discard)

    def _failed(self, binding: Binding, error: BinderUnavailable) -> None:
        interval = self._settings.binding_retry_interval.total_seconds()
        if interval <= 0:
            raise error
        is_new = str(binding.refusal) != str(error)  # the same reason is logged once, not at every attempt
        binding.refusal = error
        logger.log(
            logging.WARNING if is_new else logging.DEBUG,
            "Binding %r cannot be bound yet, and is tried again every %g s: %s",
            binding.name,
            interval,
            error,
        )
        if binding_failed.receivers:
            notify(binding_failed, self._owner, binding=binding.name, error=error)

    def _retry_later(self, binding: Binding) -> None:
        self._keep(asyncio.create_task(self._retry(binding), name=f"bind {binding.name}"))

    async def _retry(self, binding: Binding) -> None:
        interval = self._settings.binding_retry_interval.total_seconds()
        try:
            while True:
                await asyncio.sleep(interval)
                if not binding.is_expected:  # the application has started or stopped the binding itself
                    return
                if await self._try(binding):
                    logger.info("Binding %r is %s", binding.name, binding.state.value)
                    return
        except Exception as error:
            self._give_up(binding, error)

    async def output(self, name: str, binder: str | None, make_channel: MakeChannel) -> OutputBinding:
        """Return the output binding of that name; make and bind it if there is none.

        At most `dynamic-destination-cache-size` bindings that were made here are kept: the least recently used one is
        unbound.

        Args:
            name: The binding's name, or a destination.
            binder: The binder's name, or None for the binder of the settings.
            make_channel: Makes the channel of a new binding; no other binding uses it.

        Raises:
            ConfigurationError: The binding is an input, its settings are wrong, or `dynamic-destinations` forbids it.
            BinderError: The binding cannot be bound.
            ApplicationError: The application stops and has unbound its outputs.
        """
        found = self.find(name)
        if isinstance(found, OutputBinding) and binder in (None, found.binder.binder.name):
            return found
        if isinstance(found, InputBinding):
            raise ConfigurationError(
                f"binding {name!r} is an input: nothing can be sent to it. Send to its topic by another name, with "
                f"{PREFIX}.bindings.<other name>.destination",
                value=name,
            )
        key = (name, binder)
        while True:
            if key not in self._dynamic:
                async with self._lock(key):
                    if key not in self._dynamic:
                        self._dynamic[key] = await self._make(name, binder, make_channel)
            known = self._dynamic[key]
            self._dynamic.move_to_end(key)
            await self._evict()
            # Concurrent sends to other names may have evicted the binding meanwhile.
            if self._dynamic.get(key) is known:
                return known

    def _lock(self, key: tuple[str, str | None]) -> asyncio.Lock:
        return self._changing.setdefault(key, asyncio.Lock())

    async def _make(self, name: str, binder: str | None, make_channel: MakeChannel) -> OutputBinding:
        allowed = self._settings.dynamic_destinations
        if allowed and name not in allowed and not self.factory.settings.is_configured(name):
            raise ConfigurationError(
                f"destination {name!r} may not be bound while the application runs: {PREFIX}.dynamic-destinations "
                f"lists only {', '.join(allowed)}",
                value=name,
            )
        self._refuse(name, self._is_closed)
        binding = self.factory.output(name, make_channel(name), binder, self.on_new_destination)
        await binding.start()
        try:
            # Again: `stop` may have listed the outputs while this one was being bound, so it would stay bound.
            self._refuse(name, self._is_closed)
        except ApplicationError:
            await binding.stop()
            raise
        return binding

    @staticmethod
    def _refuse(name: str, is_too_late: bool) -> None:
        if is_too_late:
            raise ApplicationError(f"binding {name!r} cannot be made: the application is stopping")

    async def _evict(self) -> None:
        while len(self._dynamic) > self._settings.dynamic_destination_cache_size:
            key, oldest = self._dynamic.popitem(last=False)
            # A send to the same name makes a new binding, which must not be bound before the old one is unbound.
            async with self._lock(key):
                await oldest.stop()

    async def stop(self, timeout: float) -> None:
        """Unbind the inputs, then the outputs, then stop the binders.

        Args:
            timeout: Seconds to wait for the calls in flight of all bindings.

        Raises:
            Exception: The first error of a binder, raised after everything has been stopped.
        """
        # First, because a retry would bind again what the next steps unbind.
        retries = list(self._retries)
        for task in retries:
            task.cancel()
        await asyncio.gather(*retries, return_exceptions=True)
        self._is_stopping = True
        for binding in self.inputs:
            binding.close()
        errors = await _all(binding.stop(timeout) for binding in self.inputs)
        # Not before the inputs are unbound: their listeners may send to new names until then.
        self._is_closed = True
        outputs = [*self.outputs, *self._dynamic.values()]
        for output in outputs:
            output.close()
        errors += await _all(output.stop(timeout) for output in outputs)
        self._dynamic.clear()
        errors += await _all([self._registry.stop()])
        if errors:
            raise errors[0]

    def states(self) -> Mapping[str, str]:
        """Return the state of every binding in `bindings` by name."""
        return {name: binding.state.value for name, binding in self.bindings.items()}


async def _all(stopping: Iterable[Coroutine[object, None, None]]) -> list[BaseException]:
    results = await asyncio.gather(*stopping, return_exceptions=True)
    return [result for result in results if isinstance(result, BaseException)]


async def _answers_of(bindings: Iterable[Binding]) -> _Answers:
    """Start the binder that these bindings share, and check it for each of them; return the error of each, or None.

    If the system cannot be reached, the remaining bindings get the same error without another try.
    """
    answers: _Answers = {}
    away: BinderUnavailable | None = None
    for binding in bindings:
        try:
            if away is None:
                await binding.binder.get()
            answers[binding] = away
        except (ConfigurationError, ConfigurationErrors) as error:
            answers[binding] = error
        except BinderUnavailable as error:
            answers[binding] = away = error
    return answers


def _raise_errors(answers: Iterable[Exception | None]) -> None:
    """Raise all errors of settings together; other errors are ignored.

    Raises:
        ConfigurationError: There is one such error.
        ConfigurationErrors: There are several.
    """
    errors: list[ConfigurationError] = []
    for answer in answers:
        if isinstance(answer, ConfigurationErrors):
            errors.extend(answer.errors)
        elif isinstance(answer, ConfigurationError):
            errors.append(answer)
    if errors:
        raise ConfigurationErrors(errors) if len(errors) > 1 else errors[0]
