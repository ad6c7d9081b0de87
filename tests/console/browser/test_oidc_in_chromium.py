"""Logs in by a provider on another site in Chromium, whose rules for cookies a test without a browser does not have."""

from __future__ import annotations

import pytest
from console_process import ConsoleProcess
from identity_provider import CLIENT, SECRET, WELL_KNOWN, identity_provider, oauth_broker_config
from test_each_page import window

from headrace import Broker
from headrace.testing.ports import free_port
from token_harness import key_set

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("console-browser")]
__all__ = ["window"]


async def test_a_visitor_comes_back_from_another_site_and_is_logged_in(window, tmp_path):
    keys = tmp_path / "keys.json"
    keys.write_bytes(key_set())
    port = free_port()
    clients, oidc = tmp_path / "client.properties", tmp_path / "oidc.properties"
    clients.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n")
    with Broker(config=oauth_broker_config(keys.as_uri())) as broker, identity_provider() as provider:
        oidc.write_text(
            f"discovery.url={provider.url}{WELL_KNOWN}\nclient.id={CLIENT}\nclient.secret={SECRET}\n"
            f"redirect.url=http://localhost:{port}/login/oidc/callback\n"
            f"allowed.urls={provider.url}/token,{provider.url}/keys\n"
        )
        options = ["--listen", f"127.0.0.1:{port}", "--command-config", str(clients), "--oidc", str(oidc)]
        with ConsoleProcess(broker.bootstrap_servers, tmp_path, *options):
            # The provider is 127.0.0.1 and the console is localhost: two sites.
            await window.goto(f"http://localhost:{port}/topics?q=a")
            await window.get_by_role("link", name="Log in with").click()
            await window.get_by_role("heading", name="Topics").wait_for()
            assert window.url == f"http://localhost:{port}/topics?q=a"
            assert await window.locator(".who").get_by_text("alice").is_visible()
            cookies = {each["name"]: each["sameSite"] for each in await window.context.cookies()}
            assert cookies[f"headrace_console_{port}"] == "Strict"
            assert "headrace_oidc" not in cookies, "the attempt has ended"
            await window.get_by_role("button", name="Log out").click()
            await window.get_by_role("link", name="Log in with").wait_for()
    assert window.faults == []
