"""Answers requests for actions: the form, the page that asks for confirmation, and the change itself.

GET shows the form. POST without ``step`` checks the fields, and shows what will happen. POST with ``step=run`` makes
the change and leads to the page that shows it. Each POST carries the session's token. The JSON twin makes the change
at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from logging import getLogger
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from headrace.client.errors import HeadraceError
from headrace.console.actions.action import Action, Done, Preview
from headrace.console.answers import html_answer, json_answer, page_context
from headrace.console.body import read_form, read_object, read_query
from headrace.console.fields import Value, read_fields
from headrace.console.problems import BadFields, ConsoleError, Problem, ReadOnly, explain
from headrace.console.protection.audit import HIDDEN
from headrace.console.protection.origin import TOKEN_FIELD, TOKEN_HEADER, check_origin, check_token
from headrace.console.protection.sessions import Session
from headrace.console.request import ConsoleRequest
from headrace.console.services import Services
from headrace.console.visitors import address_of, session_of

logger = getLogger(__name__)
_LONGEST_SECONDS = 120.0
_STEP, _TYPED = "step", "typed"


class ActionAnswers:
    """Answers requests for one action."""

    def __init__(self, services: Services, action: Action) -> None:
        self._services = services
        self._action = action

    async def form(self, request: Request) -> Response:
        session = await session_of(self._services, request)
        known = {field.name for field in self._action.fields}
        given = {name: value for name, value in read_query(request).items() if name in known}
        return self._form(request, session, given)

    async def submit(self, request: Request) -> Response:
        session = await self._checked_session(request)
        given = await read_form(request)
        check_token(session.csrf_token, given.pop(TOKEN_FIELD, None))
        step, typed = given.pop(_STEP, ""), given.pop(_TYPED, "")
        given |= self._held_secrets(session, given, step)
        try:
            asked = self._asked(given, session)
            if step != "run":
                return await self._confirmation(request, asked, given)
            self._check_typed(asked, typed)
            done = await self._run(request, asked)
        except (BadFields, HeadraceError) as error:
            return self._form(request, session, given, error)
        session.message = done.message
        return RedirectResponse(done.location, 303)

    async def json(self, request: Request) -> Response:
        session = await self._checked_session(request)
        check_token(session.csrf_token, request.headers.get(TOKEN_HEADER))
        asked = self._asked(await read_object(request), session)
        return json_answer(await self._run(request, asked))

    # -- parts

    @property
    def _secrets(self) -> set[str]:
        return {field.name for field in self._action.fields if field.is_secret}

    def _held_secrets(self, session: Session, given: Mapping[str, str], step: str) -> dict[str, str]:
        """Keeps the secrets of a form in the session until its confirmation, so that no page carries them."""
        held, session.held_secrets = session.held_secrets, {}
        mine = {name: held[self._key(name)] for name in self._secrets if self._key(name) in held}
        if step == "run":
            return {name: value for name, value in mine.items() if name not in given}
        session.held_secrets = {self._key(name): given[name] for name in self._secrets if name in given}
        return {}

    def _key(self, name: str) -> str:
        return f"{self._action.name} {name}"

    async def _checked_session(self, request: Request) -> Session:
        """The session of a POST. Nothing is read of a body whose sender may not change anything."""
        check_origin(request.headers, request.url.scheme)
        if self._services.settings.is_read_only:
            raise ReadOnly
        return await session_of(self._services, request, is_kept=False)

    def _asked(self, given: Mapping[str, str], session: Session) -> ConsoleRequest:
        return ConsoleRequest(read_fields(self._action.fields, given), session, self._services)

    async def _run(self, request: Request, asked: ConsoleRequest) -> Done:
        user, address = asked.session.user, address_of(request)
        shown = self._shown(asked.values)
        write = self._services.audit.write
        write(user, address, self._action.name, shown, "begun")
        outcome = "failed: the console was stopped, or the visitor went away"
        try:
            async with asyncio.timeout(_LONGEST_SECONDS):
                done = await self._action.run(asked)
            outcome = "done"
            return done
        except Exception as error:
            outcome = f"failed: {str(error) or type(error).__name__}"
            raise
        finally:
            self._services.counts.change(self._action.name, is_done=outcome == "done")
            asked.cluster.forget()
            self._services.views.forget()
            try:
                write(user, address, self._action.name, shown, outcome)
            except OSError as error:  # The change was made; its answer must say so.
                logger.error("the outcome of %s (%s) is not in the audit log: %s", self._action.name, outcome, error)

    def _shown(self, values: Mapping[str, Value]) -> dict[str, object]:
        """The values as the audit log may have them."""
        hidden = self._secrets | set(self._services.settings.masks)
        data = {field.name for field in self._action.fields if field.is_data}
        masked = self._services.records.decoder.masked_text
        values = {name: masked(str(value)) if name in data else value for name, value in values.items()}
        return {name: HIDDEN if name in hidden else value for name, value in values.items()}

    def _check_typed(self, asked: ConsoleRequest, typed: str) -> None:
        if self._action.typed and typed != asked.text(self._action.typed):
            raise BadFields({_TYPED: f"type {asked.text(self._action.typed)!r} to confirm"})

    def _command_line(self, values: Mapping[str, Value]) -> list[str]:
        settings = self._services.settings
        words = self._action.command_line(values)
        if self._action.is_of_project:
            return [*words, "--project", str(settings.project or "DIR")]
        secured = ["--command-config", "FILE"] if settings.needs_login or _is_secured(settings.clients) else []
        return [*words[:2], "--bootstrap-server", settings.bootstrap_servers, *secured, *words[2:]]

    # -- pages

    def _form(
        self,
        request: Request,
        session: Session,
        given: Mapping[str, str],
        error: ConsoleError | HeadraceError | None = None,
    ) -> Response:
        texts = {field.name: _text_of(given.get(field.name), field.default) for field in self._action.fields}
        problem = None if error is None else explain(error)
        context: dict[str, Any] = {
            "texts": {**texts, **dict.fromkeys(self._secrets, "")},
            "problem": problem,
            "wrong": error.problems if isinstance(error, BadFields) else {},
        }
        return self._page(request, session, "action_form.html", context, problem)

    async def _confirmation(self, request: Request, asked: ConsoleRequest, given: Mapping[str, str]) -> Response:
        preview = await self._action.preview(asked) if self._action.preview is not None else Preview()
        context = {
            "given": {name: value for name, value in given.items() if name not in self._secrets},
            "texts": {field.name: _text_of(given.get(field.name), field.default) for field in self._action.fields},
            "preview": preview,
            "command_line": self._command_line(asked.values),
            "typed": asked.text(self._action.typed) if self._action.typed else "",
        }
        return self._page(request, asked.session, "action_confirmation.html", context)

    def _page(
        self, request: Request, session: Session, template: str, more: Mapping[str, Any], problem: Problem | None = None
    ) -> Response:
        action = self._action
        shared = page_context(self._services, session, title=action.title, section=action.section)
        status = 200 if problem is None else problem.status
        return html_answer(request, session, template, {**shared, "action": action, **more}, status)


def _text_of(given: str | None, default: Value) -> str:
    if given is not None:
        return given
    return "true" if default is True else "" if default in (None, False) else str(default)


def _is_secured(clients: Mapping[str, object]) -> bool:
    return str(clients.get("security.protocol", "PLAINTEXT")) != "PLAINTEXT"
