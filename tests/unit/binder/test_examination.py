"""Which destinations `Binder.examine` gets, and what becomes of a binder that fails there."""

import asyncio
from collections.abc import Mapping, Sequence

from binders.inmemory.binder import InMemoryBinder
from binders.inmemory.plugin import InMemoryBinderType
from streamkit.binder.binder import Binder, BinderContext, ConsumerDestination, ProducerDestination
from streamkit.binder.binder_type import BinderType
from streamkit.binder.examination import examine_bindings
from streamkit.config.environment import Environment
from streamkit.findings import Finding, Severity
from streamkit.plugins import hookimpl
from streamkit.plugins.application_plugins import ApplicationPlugins
from streamkit.running.rehearsal import rehearse_settings

STREAM = "spring.cloud.stream"


class Listing(InMemoryBinder):
    """Finds the names of the destinations; the binder `torn` fails."""

    async def examine(
        self,
        consumers: Sequence[ConsumerDestination],
        producers: Sequence[ProducerDestination],
        *,
        watch: float,
        answer_within: float,
    ) -> Sequence[Finding]:
        """Return one finding."""
        if self.name == "torn":
            raise OSError("the line is torn")
        about = [f"from {each.name}" for each in consumers] + [f"to {each.name}" for each in producers]
        return [Finding(severity=Severity.OK, check=self.name, about=tuple(about), found=f"{watch} {answer_within}")]


class ListingType(InMemoryBinderType):
    """The type of these binders."""

    def create_binder(self, name: str, context: BinderContext) -> Binder:
        """Return a binder."""
        return Listing(name, context)


class Plugin:
    """Offers the type."""

    @hookimpl
    def streamkit_binder_types(self) -> Mapping[str, BinderType]:
        """Return the type by its name."""
        return {"listing": ListingType()}


def examined(**bindings: str) -> list[Finding]:
    """Return what is found about bindings whose settings are given, by binders `near`, the default, and `torn`."""
    overrides = {f"{STREAM}.binders.{name}.type": "listing" for name in ("near", "torn")}
    overrides |= {f"{STREAM}.default-binder": "near"}
    overrides |= {f"{STREAM}.bindings.{key.replace('__', '.')}": value for key, value in bindings.items()}
    environment = Environment.load(config_location="optional:/none", overrides=overrides, variables={})
    rehearsed = rehearse_settings(environment, ApplicationPlugins([Plugin()]))
    assert not rehearsed.problems
    return asyncio.run(examine_bindings(rehearsed.bindings, watch=3, answer_within=10))


def test_binder_gets_all_destinations_of_its_bindings() -> None:
    """A binding of several topics is several; one of which the settings tell no direction is an input and an output."""
    (found,) = examined(in__destination="orders,bills", out__producer__partition_count="1", some__destination="letters")
    assert found.about == ("from orders", "from bills", "from letters", "to out", "to letters")
    assert found.found == "3 10"


def test_binder_that_fails_is_a_finding_beside_those_of_others() -> None:
    """With its error."""
    near, torn = examined(in__group="kitchen", out__destination="meals", out__binder="torn")
    assert near.about == ("from in",)
    assert (torn.severity, torn.about) == (Severity.WARNING, ("torn",))
    assert torn.found == "binder torn could not be examined: the line is torn"
