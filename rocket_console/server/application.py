"""The console as an ASGI application: who may ask for a page, the time limit, and what is done about errors.

::

    GET  /login, POST /login, POST /logout, POST /theme     of the console itself
    GET  /static/…                                          style sheet, module, icon
    …    the pages and actions of `rocket_console.pages.sections`

A page is shown to everybody who has logged in, an action is done for operators only. Before an action the token of its
form is compared; afterwards the audit log has it, whether it was done, failed or refused. A page that takes too long is
answered with an error that says so.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from rocket_admin.application_bindings import ApplicationBinding
from rocket_admin.avro_schemas import AvroSchemas
from rocket_client import Admin
from rocket_console.access.audit_log import AuditLog
from rocket_console.access.passwords import TooManyWrongPasswordsError
from rocket_console.access.sessions import Session, Sessions, host_of
from rocket_console.jobs.replay_jobs import ReplayJobs
from rocket_console.live.cluster_watch import ClusterWatch
from rocket_console.pages.section import Action, Page, Section
from rocket_console.pages.visit import DONE, Visit
from rocket_console.rendering.addresses import is_local, path_of, with_query
from rocket_console.rendering.templates import Templates
from rocket_console.server.forms import read_form
from rocket_console.server.problems import Problem, problem_of
from rocket_console.server.security_headers import SecurityHeaders
from streamkit.binder.exploring import Explorer
from streamkit.management.request_guard import RequestGuard

__all__ = ["ConsoleApplication"]

logger = logging.getLogger(__name__)

_STATIC: Final = Path(__file__).parents[1] / "static"
_THEMES: Final = ("light", "dark", "auto")
_THEME_COOKIE: Final = "streamkit_console_theme"
_YEAR: Final = 365 * 24 * 3600
_MAX_LOGIN: Final = 4 * 1024
_READS: Final = 10
"""A page may read messages for this part of its time limit: for 0.6 of 6 seconds."""
_LONGEST_USER: Final = 64
_CSRF: Final = "csrf"
_OLD_PAGE: Final = "The page was too old, or another site sent the form. Load the page again, and send it from there."


class ConsoleApplication:
    """The pages of a console.

    Attributes:
        asgi: The ASGI application.
    """

    def __init__(
        self,
        sections: Sequence[Section],
        *,
        admin: Admin,
        watch: ClusterWatch,
        replays: ReplayJobs,
        sessions: Sessions,
        audit_log: AuditLog,
        allowed_hosts: Sequence[str],
        seconds: float,
        bindings: Sequence[ApplicationBinding],
        explorers: Mapping[str, Explorer],
        schemas: AvroSchemas,
        systems: str,
    ) -> None:
        """Create the application.

        Args:
            sections: The pages and actions, in the order of the navigation.
            admin: Asks the cluster.
            watch: The figures over time.
            replays: The replays of dead letters that run.
            sessions: Who sends a request.
            audit_log: Has the actions.
            allowed_hosts: The names that the console is reached by, see `RequestGuard`.
            seconds: The time limit of a page.
            bindings: The bindings of the application in the current directory.
            explorers: What looks at the Kafka clusters of this application, by the names of their binders.
            schemas: The schemas of bodies that are Avro.
            systems: The addresses of the servers that the console asks, for people.
        """
        self._explorers = explorers
        self._schemas = schemas
        self._bindings = bindings
        self._admin = admin
        self._watch = watch
        self._replays = replays
        self._sessions = sessions
        self._audit_log = audit_log
        self._seconds = seconds
        self._done = {action.name: action.done for section in sections for action in section.actions}
        self._templates = Templates(
            sections=sections,
            systems=systems,
            needs_login=sessions.passwords.is_needed,
            seconds=seconds,
        )
        self.asgi = Starlette(
            routes=[
                Route("/login", self._login_page, methods=["GET"]),
                Route("/login", self._login, methods=["POST"]),
                Route("/logout", self._logout, methods=["POST"]),
                Route("/theme", self._set_theme, methods=["POST"]),
                Mount("/static", StaticFiles(directory=_STATIC)),
                *(self._page_route(section, page) for section in sections for page in section.pages),
                *(self._action_route(section, action) for section in sections for action in section.actions),
            ],
            middleware=[
                Middleware(SecurityHeaders),
                Middleware(RequestGuard, allowed_hosts=allowed_hosts, setting="--allowed-host"),
            ],
            exception_handlers={
                HTTPException: self._refused,
                TooManyWrongPasswordsError: self._too_many,
                ClientDisconnect: _client_closed,
                Exception: self._internal_error,
            },
        )

    def _page_route(self, section: Section, page: Page) -> Route:
        return Route(page.path, partial(self._show, section, page), methods=["GET"])

    def _action_route(self, section: Section, action: Action) -> Route:
        return Route(action.path, partial(self._act, section, action), methods=["POST"])

    async def _show(self, section: Section, page: Page, request: Request) -> Response:
        session = self._sessions.of(request)
        if session is None:
            return self._login_first(request)
        visit = self._visit(request, session, section)
        try:
            async with asyncio.timeout(self._seconds):
                response = await page.show(visit)
        except Exception as error:
            response = self._problem(visit, error)
        if session.new_cookie is not None:
            self._sessions.set_cookie(response, session.new_cookie, request)
        return response

    async def _act(self, section: Section, action: Action, request: Request) -> Response:
        session = self._sessions.of(request)
        if session is None:
            return self._login_first(request)
        visit = self._visit(request, session, section)
        if not session.role.may_change:
            self._record(action, visit, "refused", "the role viewer changes nothing")
            text = f"A {session.role} changes nothing: {action.name} is for operators."
            mend = "Log in with the password of operators." if self._sessions.passwords.is_needed else ""
            return self._problem_page(visit, Problem(status=403, title="Not allowed", text=text, mend=mend))
        form = await read_form(request, action.max_form)
        visit = self._visit(request, session, section, form=form, action=action.name)
        if not session.sent(form.get(_CSRF, "")):
            self._record(action, visit, "refused", "the form has no valid CSRF token")
            refused = Problem(status=403, title="Not done", text="The form is not one of this session.", mend=_OLD_PAGE)
            return self._problem_page(visit, refused)
        try:
            self._audit_log.check()
        except OSError as error:
            text = f"Nothing was changed: the audit log {self._audit_log.path} cannot be written: {error.strerror}."
            mend = "Make room, or start the console with another file: --audit-log."
            return self._problem_page(visit, Problem(status=503, title="Not done", text=text, mend=mend))
        try:
            async with asyncio.timeout(self._seconds):
                response = await action.act(visit)
        except Exception as error:
            self._record(action, visit, "failed", str(error) or type(error).__name__)
            return self._problem(visit, error)
        if response.status_code < 400:
            self._record(action, visit, "done")
        else:
            self._record(action, visit, "failed", f"status {response.status_code}")
        return response

    def _record(self, action: Action, visit: Visit, answer: str, remark: str | None = None) -> None:
        names = {name: str(value) for name, value in visit.request.path_params.items()}
        form, host = visit.form, host_of(visit.request)
        fields: dict[str, str | int] = {name: form[name] for name in action.recorded if name in form}
        # Browsers send the line breaks of a field as CR LF.
        measured = {name: form[name].replace("\r\n", "\n") for name in action.measured if name in form}
        fields |= {f"{name}_bytes": len(text.encode()) for name, text in measured.items()}
        self._audit_log.record(
            action.name, answer, session=visit.session, host=host, names=names, fields=fields, remark=remark
        )

    def _visit(
        self,
        request: Request,
        session: Session,
        section: Section | None,
        *,
        form: Mapping[str, str] | None = None,
        action: str = "",
    ) -> Visit:
        return Visit(
            request=request,
            session=session,
            admin=self._admin,
            watch=self._watch,
            replays=self._replays,
            bindings=self._bindings,
            reads_within=self._seconds / _READS,
            explorers=self._explorers,
            schemas=self._schemas,
            templates=self._templates,
            shell=self._shell(request, section, session),
            form=form or {},
            action=action,
        )

    def _shell(self, request: Request, section: Section | None, session: Session | None) -> dict[str, object]:
        """Return what the frame of every page shows."""
        query = [(name, text) for name, text in request.query_params.multi_items() if name != DONE]
        here = with_query(path_of(request.scope["path"]), query)
        theme = request.cookies.get(_THEME_COOKIE, "")
        return {
            "section": section,
            "session": session,
            "csrf_token": "" if session is None else session.csrf_token or "",
            "here": here if request.method == "GET" else _page_before(request),
            "theme": theme if theme in _THEMES else "auto",
            "done": self._done.get(request.query_params.get(DONE, "")),
            "failures": (),
        }

    def _problem(self, visit: Visit, error: Exception) -> Response:
        problem = problem_of(error, seconds=self._seconds)
        if problem is None:
            raise error
        return self._problem_page(visit, problem)

    def _problem_page(self, visit: Visit, problem: Problem) -> Response:
        return self._problem_html(visit.request, visit.shell, problem)

    def _problem_html(self, request: Request, shell: Mapping[str, object], problem: Problem) -> Response:
        template = "problem_fragment.html" if "x-fragment" in request.headers else "problem.html"
        html = self._templates.render(template, {**shell, "problem": problem, "title": problem.title})
        return HTMLResponse(html, status_code=problem.status)

    def _login_first(self, request: Request) -> Response:
        """Return a redirect to the login if a browser asks for a page, and status 401 otherwise."""
        if request.method == "GET" and "authorization" not in request.headers and "x-fragment" not in request.headers:
            here = with_query(path_of(request.scope["path"]), request.query_params.multi_items())
            return RedirectResponse(with_query("/login", {"next": "" if here == "/" else here}), status_code=303)
        headers = {"www-authenticate": 'Bearer realm="console"'}
        return PlainTextResponse("log in at /login, or send the password as a bearer token\n", 401, headers)

    async def _login_page(self, request: Request) -> Response:
        return self._login_form(request, status=200)

    def _login_form(self, request: Request, *, status: int, wrong: str = "", target: str | None = None) -> Response:
        token, new_cookie = self._sessions.login_token(request)
        target = request.query_params.get("next", "/") if target is None else target
        facts: dict[str, Any] = {
            **self._shell(request, None, None),
            "csrf_token": token,
            "title": "Log in",
            "next": target if is_local(target) else "/",
            "wrong": wrong,
        }
        response = HTMLResponse(self._templates.render("login.html", facts), status_code=status)
        if new_cookie is not None:
            self._sessions.set_cookie(response, new_cookie, request)
        return response

    async def _login(self, request: Request) -> Response:
        form = await read_form(request, _MAX_LOGIN)
        target = form.get("next", "/")
        token, new_cookie = self._sessions.login_token(request)
        if new_cookie is not None or token != form.get(_CSRF, ""):
            return self._login_form(request, status=403, wrong="The page was too old: log in again.", target=target)
        user, host = form.get("user", "").strip()[:_LONGEST_USER], host_of(request)
        try:
            role = self._sessions.passwords.role_of(form.get("password", ""), host)
        except TooManyWrongPasswordsError as error:
            return self._login_form(request, status=429, wrong=f"{error}.", target=target)
        if role is None:
            self._audit_log.record("login", "refused", session=None, host=host, names={"user": user})
            return self._login_form(request, status=403, wrong="The password is wrong.", target=target)
        session = Session(role=role, user=user, csrf_token=None)
        self._audit_log.record("login", "done", session=session, host=host, names={})
        response = RedirectResponse(target if is_local(target) else "/", status_code=303)
        self._sessions.set_cookie(response, self._sessions.begin(role, user), request)
        return response

    async def _logout(self, request: Request) -> Response:
        session, form = self._sessions.of(request), await read_form(request, _MAX_LOGIN)
        if session is not None and session.sent(form.get(_CSRF, "")):
            self._sessions.end(request)
        return RedirectResponse("/login", status_code=303)

    async def _set_theme(self, request: Request) -> Response:
        form = await read_form(request, _MAX_LOGIN)
        target, theme = form.get("next", "/"), form.get("theme", "")
        response = RedirectResponse(target if is_local(target) else "/", status_code=303)
        if theme in _THEMES:
            response.set_cookie(_THEME_COOKIE, theme, max_age=_YEAR, httponly=True, samesite="lax", path="/")
        return response

    async def _refused(self, request: Request, error: Exception) -> Response:
        """Return the page that says that an address is unknown, or a request malformed."""
        session = self._sessions.of(request)
        if session is None:
            return self._login_first(request)
        problem = problem_of(error, seconds=self._seconds)
        assert problem is not None
        return self._problem_html(request, self._shell(request, None, session), problem)

    async def _too_many(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, TooManyWrongPasswordsError)
        return PlainTextResponse(f"{error}\n", 429, {"retry-after": str(error.seconds)})

    async def _internal_error(self, request: Request, error: Exception) -> Response:
        """Return a page without details of an unexpected error; the server logs the error."""
        text = "The console made a mistake. Its log has the details."
        problem = Problem(status=500, title="Internal error", text=text, mend="")
        html = self._templates.render(
            "problem.html", {**self._shell(request, None, None), "problem": problem, "title": problem.title}
        )
        # uvicorn closes the connection after an error.
        return HTMLResponse(html, status_code=500, headers={"connection": "close"})


def _page_before(request: Request) -> str:
    """Return the address of the page whose form was sent; that of the overview, if the browser does not say."""
    before = urlsplit(request.headers.get("referer", ""))
    found = with_query(before.path, parse_qsl(before.query))
    return found if before.netloc == request.url.netloc and is_local(found) else "/"


async def _client_closed(request: Request, error: Exception) -> Response:
    """Return a response that is not sent: the client closed the connection before its request was complete."""
    return PlainTextResponse("the request is not complete\n", 400)
