"""``advisor tui --browser``: the same program in a browser, for who knows the key, and nobody else.

textual-serve starts the program, one process for each page, and knows no users: whoever reaches its
port acts as whoever started it, on a login node every user of it. So the page is given only for a
key of this run, and its connection only for a ticket that the page brings and that counts once.
Where a portal such as Open OnDemand sends keys in a form, none stands in an address, and so in no
log. Every address in the page is relative, since a portal adds folders of its own; nothing is
loaded from elsewhere.
"""

from __future__ import annotations

import hmac
import os
import secrets
import shlex
from importlib.resources import files
from string import Template

from aiohttp import web
from textual_serve.server import Server

from advisor.errors import AdvisorError, UsageError
from advisor.interpreter import own_python

KEY = "ADVISOR_TUI_KEY"
LEAST_KEY_CHARACTERS = 16
"""Of a key that somebody else chose: letters and digits, so at least 95 bits of a random one."""
MOST_TICKETS = 16
"""Pages that wait for their connection; the oldest one's ticket ends first."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; script-src 'self' 'unsafe-inline'; "
    "style-src 'self' 'unsafe-inline'; font-src 'self'; img-src 'self' data:; "
    "connect-src 'self' ws: wss:; form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
}


class Pages:
    """The pages of one run: their key, and the tickets of those that are not connected yet."""

    def __init__(self, key: str, arguments: list[str]) -> None:
        self.key = key
        self.tickets: dict[str, None] = {}
        self.server = Server(shlex.join(own_python("advisor", "tui", *arguments)))

    def application(self) -> web.Application:
        """Return what answers: the page, its connection, and textual-serve's files beside it."""
        application = web.Application(client_max_size=4096)
        application.add_routes(
            [
                web.get("/", self.show_page),
                web.post("/", self.show_page),
                web.get("/ws/{ticket}", self.connect),
                web.static("/static", self.server.statics_path),
            ]
        )
        return application

    async def show_page(self, request: web.Request) -> web.Response:
        """Answer the page to a request with the key; to others 403 and where the key is asked."""
        given = (await request.post()).get("key") if request.method == "POST" else None
        key = given if isinstance(given, str) else request.query.get("key", "")
        if not hmac.compare_digest(key.encode(), self.key.encode()):
            return _answer("key.html", status=403)
        ticket = secrets.token_urlsafe()
        self.tickets[ticket] = None
        while len(self.tickets) > MOST_TICKETS:
            del self.tickets[next(iter(self.tickets))]
        return _answer("page.html", ticket=ticket)

    async def connect(self, request: web.Request) -> web.StreamResponse:
        """Start the program for a page whose ticket was not used yet, and stay with it."""
        ticket = request.match_info["ticket"]
        if ticket not in self.tickets:
            raise web.HTTPForbidden(text="this page is connected already, or too old: reload it")
        del self.tickets[ticket]
        return await self.server.handle_websocket(request)


def _answer(name: str, *, status: int = 200, **values: str) -> web.Response:
    text = (files(__package__) / "browser_pages" / name).read_text(encoding="utf-8")
    return web.Response(
        text=Template(text).substitute(values),
        status=status,
        content_type="text/html",
        headers=_HEADERS,
    )


def serve(address: str, arguments: list[str]) -> int:
    """Serve ``advisor tui`` with these arguments until it is ended; say where on standard output.

    ``address`` is a port, or a host and a port as ``HOST:PORT``; alone a port is this machine's.
    Raises UsageError for what is no address, AdvisorError for one that is taken and a short key.
    """
    host, port = _address(address)
    # The programs that are started must not hand it on to the jobs that users submit from them.
    key = os.environ.pop(KEY, "")
    if key and len(key) < LEAST_KEY_CHARACTERS:
        raise AdvisorError(
            f"{KEY} has {len(key)} characters", hint=f"at least {LEAST_KEY_CHARACTERS} keep it safe"
        )
    # A key that was given is known to who gave it, and stays out of logs.
    query = "" if key else f"?key={(key := secrets.token_urlsafe())}"
    try:
        web.run_app(
            Pages(key, arguments).application(),
            host=host,
            port=port,
            shutdown_timeout=1,
            print=lambda _: print(f"http://{host}:{port}/{query}", flush=True),
            access_log=None,
        )
    except OSError as error:
        # asyncio puts the address before the system's words, once more.
        why = str(error.strerror).rpartition(": ")[2]
        raise AdvisorError(f"{address}: {why}", hint="name another port") from None
    return 0


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise UsageError(
            f"--browser {text}: no port", hint="a number from 1 to 65535, or HOST:PORT"
        )
    return host or "localhost", int(port)
