"""The real thing: engine with SmolLM2, web and worker under their supervisor, and people in headless Chromium.

These tests run in a pytest process of their own (`pytest tests/e2e`): Playwright's synchronous API keeps an event loop
running, beside which asynchronous tests cannot start theirs. `PAGODA_E2E_MODEL=echo pytest tests/e2e` takes the
engine's echo model instead: fast, for work on these tests; what needs an answer with a meaning fails then.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

sys.path.insert(0, str(Path(__file__).parent))

from chat_page import ChatPage, sign_in
from stack import PATIENCE_S, ROOT, Stack

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PREPARED = Path(os.environ.get("PAGODA_HOME") or ROOT / "var") / "models" / "SmolLM2-135M-Instruct"
MODEL = os.environ.get("PAGODA_E2E_MODEL", str(PREPARED))
MISSING = {
    "Chromium is not installed: apt-get install chromium": CHROMIUM is None,
    "the model is not prepared: make model": MODEL != "echo" and not Path(MODEL).is_dir(),
    "the front end is not built: make frontend": not (ROOT / "frontend" / "dist").is_dir(),
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """These tests last of all (see the module's docstring), and the soak only where it is asked for by name."""
    here = Path(__file__).parent
    if "soak" not in config.option.markexpr:
        items[:] = [item for item in items if item.get_closest_marker("soak") is None]
    items.sort(key=lambda item: here in item.path.parents)


def need(*reasons: str) -> None:
    """Skip where something is missing on a person's machine; fail where it must not be (CI=true)."""
    for reason in reasons:
        if MISSING[reason]:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)


@pytest.fixture(scope="session")
def browser_type_launch_args() -> dict[str, Any]:
    need(*list(MISSING)[:1])
    arguments = [
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
        "--disable-quic", "--disable-gpu", "--disable-dev-shm-usage",
    ]  # fmt: skip
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")
    return {"executable_path": CHROMIUM, "args": arguments, "headless": True, "timeout": PATIENCE_S * 1000}


@pytest.fixture(scope="session", autouse=True)
def patience() -> None:
    """Expectations wait as long as everything else; Playwright's own 5 seconds pass on a machine with much to do."""
    expect.set_options(timeout=PATIENCE_S * 1000)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One installation for the whole run, with the real model."""
    need(*MISSING)
    stack = Stack(tmp_path_factory.mktemp("pagoda") / "home", MODEL)
    stack.environment["PAGODA_ENGINE_STEP_MS"] = "80"  # of the echo model: time to act in the middle of an answer
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()


@pytest.fixture(scope="session")
def demo(stack: Stack) -> dict[str, Any]:
    return stack.demo()


@pytest.fixture(scope="session")
def sessions(browser: Browser, stack: Stack, demo: dict[str, Any]) -> dict[str, Any]:
    """Who -> a signed-in browser's cookies: "operator", and each tenant's member by the tenant's short name."""
    people = {"operator": demo["operator"]} | {tenant["slug"]: tenant["members"][0] for tenant in demo["tenants"]}
    found = {}
    for who, person in people.items():
        context = browser.new_context()
        sign_in(context.new_page(), stack.url, person["email"], person["password"])
        found[who] = context.storage_state()
        context.close()
    return found


@pytest.fixture
def contexts(browser: Browser, sessions: dict[str, Any]) -> Iterator[Callable[[str], BrowserContext]]:
    """Opens a browser window of a person who is signed in."""
    opened: list[BrowserContext] = []

    def open_for(who: str) -> BrowserContext:
        context = browser.new_context(storage_state=sessions[who], viewport={"width": 1280, "height": 900})
        context.set_default_timeout(PATIENCE_S * 1000)
        opened.append(context)
        return context

    yield open_for
    for context in opened:
        context.close()


@pytest.fixture
def member(contexts: Callable[[str], BrowserContext], stack: Stack) -> Iterator[ChatPage]:
    """Acme's member at a new conversation. Whatever still streams at the end of the test is stopped."""
    chat = ChatPage(contexts("acme").new_page(), stack.url)
    chat.open()
    yield chat
    chat.stop_if_streaming()


@pytest.fixture
def rival(contexts: Callable[[str], BrowserContext], stack: Stack) -> ChatPage:
    """Globex's member at a new conversation."""
    chat = ChatPage(contexts("globex").new_page(), stack.url)
    chat.open()
    return chat


@pytest.fixture
def operator(contexts: Callable[[str], BrowserContext]) -> Page:
    return contexts("operator").new_page()
