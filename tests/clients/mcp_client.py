"""The Python SDK of the Model Context Protocol as client and server, in its first and
its second generation: a user signs in, tools are called, denied and stepped up to."""

import asyncio
import importlib.metadata
import os
import re
import socket
import subprocess
import sys
import unittest
from contextlib import asynccontextmanager
from html import unescape
from urllib.parse import parse_qs, urljoin, urlsplit

SECOND = importlib.metadata.version("mcp").startswith("2.")
if SECOND:
    import httpx2 as httpx
else:
    import httpx

from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata


def serve(port):
    """A server with three tools; the door is before it."""
    if SECOND:
        from mcp.server import MCPServer as Server

        server, settings = Server("tools"), {"host": "127.0.0.1", "port": port}
    else:
        from mcp.server.fastmcp import FastMCP as Server

        server, settings = Server("tools", host="127.0.0.1", port=port), {}

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    def pay(amount: int) -> str:
        return f"paid {amount}"

    @server.tool()
    def delete(name: str) -> str:
        raise AssertionError(f"{name}: the door lets nobody delete")

    server.run("streamable-http", **settings)


if sys.argv[1:2] == ["serve"]:
    serve(int(sys.argv[2]))
    sys.exit()

BASE = os.environ["DOORWARD_BASE"]
RESOURCE = f"{BASE}/mcp"
REDIRECT = "http://127.0.0.1:33418/callback"


class Storage:
    """Keeps tokens and the registration in memory."""

    tokens = client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


class Person:
    """Signs in as demo and allows what the page of the provider asks for."""

    def __init__(self):
        self.browser = httpx.AsyncClient(follow_redirects=False, timeout=30)
        self.asked, self.told = [], None

    async def visit(self, url):
        self.asked.append(parse_qs(urlsplit(url).query))
        answer = await self.browser.get(url)
        for _ in range(10):
            if answer.is_redirect:
                target = urljoin(str(answer.url), answer.headers["location"])
                if not target.startswith(BASE):
                    self.told = parse_qs(urlsplit(target).query)
                    return
                answer = await self.browser.get(target)
                continue
            assert answer.status_code == 200, answer.text
            action = unescape(re.search(r'<form method="post" action="([^"]*)"', answer.text)[1])
            hidden = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', answer.text)
            fields = {unescape(name): unescape(value) for name, value in hidden}
            if 'name="password"' in answer.text:
                fields |= {"username": "demo", "password": "Ch4ng31t-demo", "login": "true"}
            else:
                fields["approve"] = "true"
            answer = await self.browser.post(urljoin(str(answer.url), action), data=fields)
        raise AssertionError("the provider leads in circles")

    async def come_back(self):
        assert "code" in self.told, (self.asked[-1], self.told)
        code, state = self.told["code"][0], self.told["state"][0]
        if not SECOND:
            return code, state
        from mcp.client.auth import AuthorizationCodeResult

        return AuthorizationCodeResult(code=code, state=state, iss=self.told["iss"][0])


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@asynccontextmanager
async def server():
    """The server of this SDK behind the door."""
    port = int(os.environ["DOORWARD_UPSTREAM"])
    process = subprocess.Popen([sys.executable, __file__, "serve", str(port)])
    try:
        for _ in range(400):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            await asyncio.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


def metadata(**more):
    return OAuthClientMetadata(
        client_name="sdk",
        redirect_uris=[REDIRECT],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
        token_endpoint_auth_method="none",
        **more,
    )


@asynccontextmanager
async def transport(person, storage):
    auth = OAuthClientProvider(
        server_url=RESOURCE,
        client_metadata=metadata(),
        storage=storage,
        redirect_handler=person.visit,
        callback_handler=person.come_back,
    )
    async with httpx.AsyncClient(auth=auth, timeout=30) as http:
        async with streamable_http_client(RESOURCE, http_client=http) as streams:
            yield streams[0], streams[1]


async def text(session, tool, **arguments):
    answer = await session.call_tool(tool, arguments)
    return answer.content[0].text


async def denied(call):
    try:
        await asyncio.wait_for(call, 30)
    except Exception as error:
        return error
    raise AssertionError("the call was not denied")


class Door(unittest.IsolatedAsyncioTestCase):
    async def use(self, session, person):
        tools = await session.list_tools()
        self.assertEqual([tool.name for tool in tools.tools], ["add", "pay"])
        self.assertEqual(await text(session, "add", a=1, b=2), "3")
        self.assertEqual(len(person.asked), 1)
        self.assertEqual(person.asked[0]["resource"], [RESOURCE])

        # Denied, and no scope would help: the call fails alone.
        error = await denied(session.call_tool("delete", {"name": "x"}))
        self.assertIn("the caller may not do this", str(error))
        self.assertEqual(await text(session, "add", a=3, b=4), "7")
        self.assertEqual(len(person.asked), 1, "nobody was asked for more")

        # A scope helps: the user is asked for it, and the same session goes on.
        self.assertEqual(await text(session, "pay", amount=5), "paid 5")
        self.assertEqual(len(person.asked), 2)
        self.assertIn("payments", person.asked[1]["scope"][0].split())
        self.assertEqual(await text(session, "add", a=5, b=6), "11")

    async def test_a_session_outlives_denied_calls_and_steps_up(self):
        person = Person()
        async with server(), transport(person, Storage()) as streams:
            async with ClientSession(*streams) as session:
                await session.initialize()
                await self.use(session, person)

    @unittest.skipUnless(SECOND, "the first generation knows no other")
    async def test_the_newest_revision_without_sessions(self):
        from mcp.client import Client

        person = Person()
        async with server():
            async with Client(transport(person, Storage()), mode="2026-07-28") as client:
                await self.use(client, person)


if __name__ == "__main__":
    unittest.main()
