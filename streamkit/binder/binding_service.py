"""All bindings of one run of an application: binds them in order, tries again later, unbinds them.

::

    start    1. all binders are asked at once whether they can do what the settings ask; one that takes long is not
                waited for, and bound when it answers
             2. outputs are bound, then inputs: what a listener sends has somewhere to go
             3. bindings whose system is away are tried again every binding-retry-interval
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
"""How long a start waits for other binders when one has answered; their bindings are bound when they answer."""

_Answers = dict[Binding, BinderUnavailable | ConfigurationError | None]
"""What became of asking the binder of each binding: None if it can be bound."""


class BindingService:
    """Starts and stops bindings.

    Attributes:
        bindings: Those of listeners, interfaces and settings, by name.
        on_new_destination: Called before an output binding is made because somebody sends to its name.
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
        # Bindings made by name while the application runs, the one used longest ago first.
        self._dynamic: OrderedDict[tuple[str, str | None], OutputBinding] = OrderedDict()
        # Of each of those names one at a time is bound or unbound; the others are not held up.
        self._changing: WeakValueDictionary[tuple[str, str | None], asyncio.Lock] = WeakValueDictionary()
        # While stopping, new bindings are refused: inputs first, then outputs too.
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
        """The output bindings made by name while the application runs, the one used longest ago first."""
        return list(self._dynamic.values())

    def add(self, binding: Binding) -> None:
        """Take charge of a binding."""
        self.bindings[binding.name] = binding
        self._by_uniform_name[uniform(binding.name)] = binding

    def find(self, name: str) -> Binding | None:
        """Return the binding of that name, in any case."""
        return self._by_uniform_name.get(uniform(name))

    async def start(self) -> None:
        """Bind everything that starts by itself.

        Raises:
            ConfigurationErrors: Settings ask what binders cannot do; all of them are told.
            BinderError: A system is away and the settings say to fail, or it refused.
        """
        await self._bind([*self.outputs, *self.inputs])

    async def launch(self, binding: OutputBinding | InputBinding) -> None:
        """Take charge of one more binding, and bind it if it starts by itself; errors as those of :meth:`start`.

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
        for expected in starting:
            expected.expect()
        for asked, of_binder in late.items():
            self._bind_later(asked, of_binder)
        for binding in starting:
            if binding in answers and (answers[binding] is not None or not await self._try(binding)):
                self._retry_later(binding)

    def _starts(self, binding: Binding) -> bool:
        properties = self.factory.settings.properties(binding.name)
        if isinstance(binding, InputBinding):
            return properties.consumer.auto_startup and binding.starts
        return properties.producer.auto_startup

    async def _ask(
        self, bindings: Sequence[OutputBinding | InputBinding]
    ) -> "tuple[_Answers, dict[asyncio.Task[_Answers], list[OutputBinding | InputBinding]]]":
        """Ask every binder what it can do, all at once.

        A binder that takes long holds up only its own bindings: it is not waited for longer than `LATE_SECONDS`
        when another one has answered, unless a system that is away is to fail the start.

        Returns:
            What became of the bindings of those that answered, and the answers under way with the others' bindings.
        """
        of_binder: dict[str, list[OutputBinding | InputBinding]] = {}
        for binding in bindings:
            of_binder.setdefault(binding.binder.binder.name, []).append(binding)
        tasks = {
            asyncio.create_task(_asked(asked), name=f"ask binder {name}"): asked
            for name, asked in of_binder.items()
        }
        try:
            if tasks:
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
        """Bind; False when the system is away."""
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
            binding.answer = asyncio.get_running_loop().create_future()
        self._keep(asyncio.create_task(self._bind_answered(asked, bindings), name=f"await binder {binder}"))

    async def _bind_answered(self, asked: "asyncio.Task[_Answers]", bindings: Sequence[Binding]) -> None:
        """Bind the bindings of a binder when it has answered."""
        try:
            answers = await asked
            for binding in bindings:
                error = answers.get(binding)
                if isinstance(error, ConfigurationError):
                    self._give_up(binding, error)
                elif isinstance(error, BinderUnavailable):
                    self._failed(binding, error)
                    self._retry_later(binding)
                elif binding.is_expected:
                    await self._try_late(binding)
                self._answered(binding)
        except Exception as error:
            for binding in bindings:
                if binding.is_expected:
                    self._give_up(binding, error)
        finally:
            for binding in bindings:
                self._answered(binding)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    async def _try_late(self, binding: Binding) -> None:
        try:
            if not await self._try(binding):
                self._retry_later(binding)
        except Exception as error:
            self._give_up(binding, error)

    @staticmethod
    def _answered(binding: Binding) -> None:
        answer, binding.answer = binding.answer, None
        if answer is not None and not answer.done():
            answer.set_result(None)

    def _give_up(self, binding: Binding, error: Exception) -> None:
        """Say that nobody waits for the binding any more."""
        binding.give_up(error)
        logger.error("Binding %r cannot be bound, and is not tried again", binding.name, exc_info=error)
        if binding_failed.receivers:
            notify(binding_failed, self._owner, binding=binding.name, error=error)

    def _keep(self, task: "asyncio.Task[None]") -> None:
        self._retries.add(task)
        task.add_done_callback(self._retries.discard)

    def _failed(self, binding: Binding, error: BinderUnavailable) -> None:
        interval = self._settings.binding_retry_interval.total_seconds()
        if interval <= 0:
            raise error
        logger.warning("Binding %r is tried again in %g s: %s", binding.name, interval, error)
        if binding_failed.receivers:
            notify(binding_failed, self._owner, binding=binding.name, error=error)

    def _retry_later(self, binding: Binding) -> None:
        self._keep(asyncio.create_task(self._retry(binding), name=f"bind {binding.name}"))

    async def _retry(self, binding: Binding) -> None:
        interval = self._settings.binding_retry_interval.total_seconds()
        try:
            while True:
                await asyncio.sleep(interval)
                if not binding.is_expected:  # it was started or stopped by hand
                    return
                if await self._try(binding):
                    logger.info("Binding %r is %s", binding.name, binding.state.value)
                    return
        except Exception as error:
            self._give_up(binding, error)

    async def output(self, name: str, binder: str | None, make_channel: MakeChannel) -> OutputBinding:
        """Return the output binding of that name, bound; one that is new is made.

        Args:
            name: The binding's name, or a destination.
            binder: The binder's name, if not the one of the settings.
            make_channel: Makes the channel of a new binding, which nothing else is bound to.

        Raises:
            ConfigurationError: It is an input, or may not be made.
            BinderError: It cannot be bound.
            ApplicationError: The application stops, and has unbound its outputs.
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
            if self._dynamic.get(key) is known:  # else others, who made bindings meanwhile, had it unbound
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
            self._refuse(name, self._is_closed)
        except ApplicationError:
            await binding.stop()
            raise
        return binding

    @staticmethod
    def _refuse(name: str, is_too_late: bool) -> None:
        if is_too_late:
            raise ApplicationError(f"binding {name!r} cannot be made: the application stops")

    async def _evict(self) -> None:
        while len(self._dynamic) > self._settings.dynamic_destination_cache_size:
            key, oldest = self._dynamic.popitem(last=False)
            async with self._lock(key):
                await oldest.stop()

    async def stop(self, timeout: float) -> None:
        """Unbind everything; calls in flight get ``timeout`` seconds, together.

        Raises:
            Exception: The first error of a binder; everything is stopped all the same.
        """
        retries = list(self._retries)
        for task in retries:
            task.cancel()
        await asyncio.gather(*retries, return_exceptions=True)
        self._is_stopping = True
        for binding in self.inputs:
            binding.close()
        errors = await _all(binding.stop(timeout) for binding in self.inputs)
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
        """Return the state of every binding by name."""
        return {name: binding.state.value for name, binding in self.bindings.items()}


async def _all(stopping: Iterable[Coroutine[object, None, None]]) -> list[BaseException]:
    results = await asyncio.gather(*stopping, return_exceptions=True)
    return [result for result in results if isinstance(result, BaseException)]


async def _asked(bindings: Iterable[Binding]) -> _Answers:
    """Ask the binder of these bindings, one after the other; a system that is away is asked once."""
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
    """Raise what is wrong with the settings, all of it together.

    Raises:
        ConfigurationError: One thing is wrong.
        ConfigurationErrors: Several are.
    """
    errors: list[ConfigurationError] = []
    for answer in answers:
        if isinstance(answer, ConfigurationErrors):
            errors.extend(answer.errors)
        elif isinstance(answer, ConfigurationError):
            errors.append(answer)
    if errors:
        raise ConfigurationErrors(errors) if len(errors) > 1 else errors[0]
