"""One request for a page: what was asked, by whom, and the response."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from rocket_admin.application_bindings import ApplicationBinding
from rocket_admin.avro_schemas import AvroSchemas
from rocket_admin.broker_answers import BrokerFailure
from rocket_admin.conditions import Condition, conditions_of
from rocket_client import Admin
from rocket_console.access.sessions import Session
from rocket_console.jobs.replay_jobs import ReplayJobs
from rocket_console.live.cluster_watch import ClusterWatch
from rocket_console.rendering.addresses import path_of
from rocket_console.rendering.templates import Templates
from rocket_console.tables.table import Table
from rocket_console.tables.table_view import T, TableView
from streamkit.binder.exploring import Explorer

__all__ = ["Visit"]

DONE = "done"
"""The parameter that names the action before."""


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One request for a page, whose sender may see it.

    Attributes:
        request: The request.
        session: Who sends it.
        admin: Asks the cluster.
        watch: The figures over time.
        replays: The replays of dead letters that run.
        bindings: The bindings of the application in the current directory; empty if there is none.
        reads_within: Seconds for which a page reads messages before it shows what it has.
        explorers: What looks at the Kafka clusters of this application, by the names of their binders.
        schemas: The schemas of bodies that are Avro.
        templates: The templates.
        shell: What every page shows: navigation, keys, what was done, and the like.
        form: The fields of the form; empty for a page.
        action: The name of the action; empty for a page.
    """

    request: Request
    session: Session
    admin: Admin
    watch: ClusterWatch
    replays: ReplayJobs
    bindings: Sequence[ApplicationBinding]
    reads_within: float
    explorers: Mapping[str, Explorer]
    schemas: AvroSchemas
    templates: Templates
    shell: Mapping[str, object] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)
    action: str = ""

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters of the address."""
        return self.request.query_params

    @property
    def path(self) -> str:
        """The path of the page, as it is written in an address."""
        return path_of(self.request.scope["path"])

    def name(self, parameter: str) -> str:
        """Return a parameter of the path, such as a topic's name."""
        return str(self.request.path_params[parameter])

    def conditions(self, fields: Mapping[str, str]) -> tuple[Condition, ...]:
        """Return the conditions in the field `where`, one in a line; paths also lead into bodies that are Avro.

        Args:
            fields: The parameters of the address, or the fields of the form.

        Raises:
            ValueError: A line is not a condition.
        """
        return conditions_of(filter(None, fields.get("where", "").splitlines()), self.schemas.document_of)

    def table(self, table: Table[T], items: Sequence[T], *, path: str | None = None) -> TableView[T]:
        """Return a table as the address asks for it.

        Args:
            table: The table.
            items: All its items.
            path: The path of the page, if this visit is for a part of it.
        """
        return TableView(table, items, path or self.path, self.query)

    def page(
        self,
        template: str,
        *,
        title: str,
        tables: Sequence[TableView[Any]] = (),
        failures: Sequence[BrokerFailure] = (),
        **facts: object,
    ) -> Response:
        """Return a page; or one of its tables as a file, if the address asks for that.

        Args:
            template: The file of the template.
            title: The title of the page.
            tables: The tables on it, which the template sees by their names.
            failures: The brokers that did not answer, which the page names.
            facts: What else the template sees.
        """
        wanted = self.query.get("export")
        for view in tables if wanted is not None else ():
            file = view.export(wanted or "")
            if file is not None:
                headers = {"content-disposition": f'attachment; filename="{file.name}"'}
                return Response(file.content, media_type=file.media_type, headers=headers)
        seen = {**self.shell, **facts, "title": title, "failures": failures, "session": self.session}
        return self.html(template, seen | {view.table.name: view for view in tables})

    def fragment(
        self, template: str, *, next_address: str | None = None, is_last: bool = False, **facts: object
    ) -> Response:
        """Return a part of a page that is open, which takes the place of the part before.

        Args:
            template: The file of the template.
            next_address: Where the next part is; None if it is at the same address.
            is_last: Whether the part does not change any more, so that the page stops asking for it.
            facts: What the template sees.
        """
        response = self.html(template, {**self.shell, **facts, "session": self.session})
        if next_address is not None:
            response.headers["x-next"] = next_address
        if is_last:
            response.headers["x-last"] = "1"
        return response

    def html(self, template: str, facts: dict[str, Any]) -> Response:
        """Return the HTML of a template."""
        return HTMLResponse(self.templates.render(template, facts))

    def done(self, address: str) -> Response:
        """Return the response to an action: go to a page, which says what was done."""
        return RedirectResponse(f"{address}{'&' if '?' in address else '?'}{DONE}={self.action}", status_code=303)
