"""``advisor tui --browser`` and a portal's app: the real server, asked as by a browser."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml
from aiohttp import web

pytestmark = pytest.mark.terminal
ROOT = Path(__file__).resolve().parents[2]
APP = ROOT / "packaging/ondemand"
KEY = "k3yOfThisSession0123456789abcdef"
Use = Callable[[aiohttp.ClientSession], Awaitable[None]]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


@contextmanager
def started(command: list[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A program of our own, with its standard output; ended as a session's script is."""
    places = {**os.environ, **environment}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=places) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def advisor(*words: str) -> list[str]:
    return [sys.executable, "-m", "advisor", "tui", "--demo", *words]


async def painted(socket: aiohttp.ClientWebSocketResponse, words: bytes) -> bytes:
    """Return what the program has painted once the words are among it."""
    text = b""
    while words not in text:
        message = await socket.receive(timeout=60)
        assert message.type is aiohttp.WSMsgType.BINARY, (message, text)
        text += message.data
    return text


def as_browser(use: Use) -> None:
    async def run() -> None:
        async with aiohttp.ClientSession() as browser:
            await use(browser)

    asyncio.run(run())


def ticket_of(page: str) -> str:
    (ticket,) = re.findall(r'"ws/([\w-]+)"', page)
    return str(ticket)


def test_the_page_is_given_for_the_key_and_its_connection_once() -> None:
    port = free_port()
    with started(advisor("--browser", str(port))) as server:
        assert server.stdout
        url = server.stdout.readline().strip()
        address, _, key = url.partition("?key=")
        assert address == f"http://localhost:{port}/" and len(key) >= 32

        async def use(browser: aiohttp.ClientSession) -> None:
            for query in ("", "?key=", f"?key={key[:-1]}", f"?key={key}x", "?key=%ff"):
                async with browser.get(address + query) as answer:
                    assert answer.status == 403 and "ws/" not in await answer.text()
            async with browser.post(address, data={"key": "x" * 100_000}) as answer:
                assert answer.status == 413
            async with browser.get(f"{address}ws/{'x' * 43}") as answer:
                assert answer.status == 403
            for path in ("static/../server.py", "static/%2e%2e/server.py", "download/x", "static/"):
                async with browser.get(address + path) as answer:
                    assert answer.status in (403, 404)
            async with browser.get(url) as answer:
                page = await answer.text()
                assert answer.status == 200 and answer.headers["Cache-Control"] == "no-store"
            assert key not in page and "://" not in page
            for file in re.findall(r'(?:src|href)="(static/[^"]+)"|url\("(static/[^"]+)"', page):
                async with browser.get(address + "".join(file)) as answer:
                    assert answer.status == 200
            connection = f"{address}ws/{ticket_of(page)}?width=100&height=30"
            async with browser.ws_connect(connection) as socket:
                await painted(socket, b"cg-solver")
                async with browser.get(connection) as answer:
                    assert answer.status == 403
                await socket.send_json(["stdin", "q"])
                while (await socket.receive(timeout=60)).type != aiohttp.WSMsgType.CLOSE:
                    pass

        as_browser(use)
    assert server.returncode == 0


def test_a_server_that_cannot_be_says_why() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for words, variables, said, code in (
            (f"127.0.0.1:{port}", {}, "address already in use", 1),
            ("80a", {}, "--browser 80a: no port", 2),
            ("localhost:0", {}, "no port", 2),
            (str(free_port()), {"ADVISOR_TUI_KEY": "short"}, "ADVISOR_TUI_KEY has 5 characters", 1),
        ):
            done = subprocess.run(
                advisor("--browser", words),
                env={**os.environ, **variables},
                capture_output=True,
                text=True,
            )
            assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
            assert said in done.stderr


@asynccontextmanager
async def portal() -> AsyncIterator[str]:
    """A proxy that takes /rnode/HOST/PORT off as Open OnDemand's does; yield its address."""

    async def hand_on(request: web.Request) -> web.StreamResponse:
        path = request.match_info
        url = f"http://{path['host']}:{path['port']}/{path['rest']}?{request.query_string}"
        async with aiohttp.ClientSession() as client:
            if "Upgrade" not in request.headers:
                kind = {"Content-Type": request.headers.get("Content-Type", "")}
                data = await request.read()
                async with client.request(request.method, url, data=data, headers=kind) as answer:
                    return web.Response(status=answer.status, body=await answer.read())
            ours = web.WebSocketResponse()
            await ours.prepare(request)
            async with client.ws_connect(url) as theirs:

                async def up() -> None:
                    async for message in ours:
                        await theirs.send_str(message.data)

                typed = asyncio.create_task(up())
                async for message in theirs:
                    await ours.send_bytes(message.data)
                typed.cancel()
            await ours.close()
            return ours

    application = web.Application()
    application.router.add_route("*", "/rnode/{host}/{port}/{rest:.*}", hand_on)
    runner = web.AppRunner(application)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield f"http://127.0.0.1:{port}"
    await runner.cleanup()


SESSION = f"""
host=127.0.0.1
find_port() {{ echo "$PORT"; }}
create_passwd() {{ test "$1" = 32 && echo {KEY}; }}
wait_until_port_used() {{ until : 2> /dev/null > /dev/tcp/${{1/:/\\/}}; do sleep 0.1; done; }}
export host
source {APP}/template/before.sh
{APP}/template/script.sh & pid=$!
trap 'kill $pid' TERM
source {APP}/template/after.sh
echo "$host $port $password"
wait $pid
wait $pid
"""
"""What the portal's script for template basic does; its three helpers are posed."""
VIEW = "host, port, password = ARGV; require 'erb'; puts ERB.new($stdin.read).result(binding)"


def test_the_portals_session_shows_the_program_to_its_owner(tmp_path: Path) -> None:
    """From the script that the portal starts to the keys typed in the page behind its proxy."""
    program = tmp_path / "advisor"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m advisor "$@" --demo\n')
    program.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    port = free_port()
    with started(["bash", "-euc", SESSION], PATH=path, PORT=str(port)) as session:
        assert session.stdout
        lines = session.stdout.readline(), session.stdout.readline()
        assert lines == (f"http://0.0.0.0:{port}/\n", f"127.0.0.1 {port} {KEY}\n")
        form = view("127.0.0.1", str(port), KEY)
        (action,) = re.findall(r'action="([^"]+)" method="post"', form)
        fields = dict(re.findall(r'name="(\w+)" value="([^"]+)"', form))

        async def use(browser: aiohttp.ClientSession) -> None:
            async with portal() as address:
                async with browser.post(address + action, data={}) as answer:
                    assert answer.status == 403
                async with browser.post(address + action, data=fields) as answer:
                    page = await answer.text()
                    assert answer.status == 200 and KEY not in page
                async with browser.get(f"{address}{action}static/js/textual.js") as answer:
                    assert answer.status == 200
                async with browser.ws_connect(f"{address}{action}ws/{ticket_of(page)}") as socket:
                    await painted(socket, b"cg-solver")
                    await socket.send_json(["stdin", "2"])
                    await painted(socket, b"[2 Jobs]")

        as_browser(use)


def view(*values: str) -> str:
    """Return the portal's form, by Ruby where it is installed."""
    text = (APP / "view.html.erb").read_text()
    if shutil.which("ruby"):
        done = subprocess.run(
            ["ruby", "-e", VIEW, *values], input=text, capture_output=True, text=True, check=True
        )
        return done.stdout
    for name, value in zip(("host", "port", "password"), values, strict=True):
        text = text.replace(f"<%= {name} %>", value)
    return text


def test_the_portals_files_say_what_it_asks_for() -> None:
    manifest = yaml.safe_load((APP / "manifest.yml").read_text())
    assert manifest["role"] == "batch_connect" and manifest["name"] == "Advisor"
    form = yaml.safe_load((APP / "form.yml").read_text())
    assert form.keys() == {"cluster", "form"}
    submit = (APP / "submit.yml.erb").read_text()
    assert "<%" not in submit and yaml.safe_load(submit)["batch_connect"] == {"template": "basic"}
    assert os.access(APP / "template/script.sh", os.X_OK)
