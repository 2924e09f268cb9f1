"""A tenant's admin in the browser: API keys from their making to their end, and what they used. Beside a rival."""

from __future__ import annotations

import csv
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from chat_page import ChatPage, sign_in
from people import make_admin
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, expect
from stack import PATIENCE_S, Stack, until

# The first of them starts the whole installation.
pytestmark = [pytest.mark.browser, pytest.mark.model, pytest.mark.slow]

PHONE = {"viewport": {"width": 390, "height": 844}}

UNNAMED = """() => [...document.querySelectorAll("input, select, textarea, button, a[href], progress")]
    .filter((each) => each.type !== "hidden")
    .filter((each) => !each.labels?.length && !each.getAttribute("aria-label") && !each.getAttribute("aria-labelledby")
        && !each.textContent.trim())
    .map((each) => each.outerHTML)"""
"""What a screen reader has no name for."""


CUT_OFF = """() => [...document.querySelectorAll(".table, .table :is(td, th), .card, dd")]
    .filter((each) => each.scrollWidth > each.clientWidth + 1 && each.clientWidth > 1)
    .map((each) => each.outerHTML.slice(0, 200))"""
"""What does not fit into its place: it would be cut off, or lie over its neighbour."""


@pytest.fixture(scope="module")
def states(browser: Browser, stack: Stack, demo: dict[str, Any]) -> dict[str, Any]:
    """Each tenant's admin, signed in."""
    found = {}
    for slug in ("acme", "globex"):
        person = make_admin(stack, slug)
        context = browser.new_context()
        sign_in(context.new_page(), stack.url, person.email, person.password)
        found[slug] = context.storage_state()
        context.close()
    return found


@pytest.fixture
def admin_of(browser: Browser, states: dict[str, Any], stack: Stack) -> Iterator[Callable[..., Page]]:
    """Opens a window of a tenant's admin. At the end: nothing broke the policy, and no other host was asked."""
    opened: list[BrowserContext] = []
    faults: list[str] = []

    def is_own(address: str) -> bool:
        return address.startswith((stack.url, "data:", "blob:"))

    def open_for(slug: str, **options: Any) -> Page:
        context = browser.new_context(storage_state=states[slug], **options)
        context.set_default_timeout(PATIENCE_S * 1000)
        opened.append(context)
        page = context.new_page()
        page.on("console", lambda message: faults.extend([message.text] if message.type == "error" else []))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: faults.extend([] if is_own(request.url) else [request.url]))
        return page

    yield open_for
    for context in opened:
        context.close()
    assert [fault for fault in faults if "Failed to load resource" not in fault] == []


def call(stack: Stack, key: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    try:
        request = urllib.request.Request(stack.url + path, data, headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def model(stack: Stack, key: str) -> str:
    return str(call(stack, key, "/v1/models")[1]["data"][0]["id"])


def ask(stack: Stack, key: str, text: str = "Say hello.") -> dict[str, Any]:
    body = {"model": model(stack, key), "messages": [{"role": "user", "content": text}], "max_tokens": 8}
    status, answer = call(stack, key, "/v1/chat/completions", body)
    assert status == 200, answer
    return answer


def make_key(page: Page, stack: Stack, label: str) -> str:
    page.goto(f"{stack.url}/members/")
    page.get_by_label("Label").fill(label)
    page.get_by_role("button", name="Make a key").click()
    text = page.get_by_label("API key", exact=True).input_value()
    assert re.fullmatch(r"pgd_[a-z0-9]{8}_[\w-]{43}", text)
    return text


def refused(stack: Stack, key: str) -> bool:
    status, answer = call(stack, key, "/v1/models")
    return status == 401 and answer["error"]["code"] == "invalid_api_key"


def test_a_key_from_its_making_to_its_end(admin_of: Callable[..., Page], stack: Stack) -> None:
    page = admin_of("acme", permissions=["clipboard-read", "clipboard-write"])
    first = make_key(page, stack, "lighthouse")
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == first
    page.reload()
    assert first not in page.content()
    ask(stack, first)

    page.get_by_role("link", name="lighthouse").click()
    address = page.url
    page.get_by_label("The old key still works for").select_option("0")
    page.get_by_role("button", name="Make the new key").click()
    second = page.get_by_label("API key", exact=True).input_value()
    assert second != first
    until(lambda: refused(stack, first), PATIENCE_S, "the replaced key still works")
    ask(stack, second)

    rival = admin_of("globex")
    rival.goto(f"{stack.url}/members/")
    assert "lighthouse" not in rival.content()
    answer = rival.goto(address)
    assert answer is not None
    assert answer.status == 404

    questions: list[str] = []

    def agree(dialog: Dialog) -> None:
        questions.append(dialog.message)
        dialog.accept()

    page.on("dialog", agree)
    page.get_by_role("button", name="Revoke: lighthouse").first.click()
    expect(page.get_by_text("The key no longer works.")).to_be_visible()
    assert "lighthouse" in questions[0]
    until(lambda: refused(stack, second), PATIENCE_S, "the revoked key still works")
    page.goto(address)
    expect(page.get_by_text("This key does not work any more")).to_be_visible()
    assert page.get_by_role("button", name="Revoke").count() == 0


def test_limits_of_a_key_are_set_without_a_mouse_and_hold(admin_of: Callable[..., Page], stack: Stack) -> None:
    page = admin_of("acme")
    page.goto(f"{stack.url}/members/")
    page.get_by_label("Label").focus()
    page.keyboard.type("narrow")
    page.get_by_text("Limits of this key").focus()
    page.keyboard.press("Enter")
    limit = page.get_by_label("Requests per minute")
    expect(limit).to_be_visible()
    limit.fill("0")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_be_visible()  # and the limits are in sight, with what was typed
    expect(limit).to_have_value("0")
    expect(limit).to_have_attribute("aria-invalid", "true")
    limit.fill("1")
    page.keyboard.press("Enter")
    key = page.get_by_label("API key", exact=True).input_value()
    body = {"model": model(stack, key), "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    assert call(stack, key, "/v1/chat/completions", body)[0] == 200
    status, answer = call(stack, key, "/v1/chat/completions", body)
    assert (status, answer["error"]["code"]) == (429, "rate_limit_exceeded")


def number(page: Page, name: str) -> int:
    """A tile's."""
    text = page.get_by_test_id("together").locator("div", has=page.get_by_text(name, exact=True)).inner_text()
    return int(text.split("\n")[1].split(" ")[0].replace(",", ""))


def test_the_usage_page_says_what_the_ledger_says_of_its_tenant_alone(
    admin_of: Callable[..., Page], member: ChatPage, stack: Stack
) -> None:
    page, rival = admin_of("acme"), admin_of("globex")
    keys = {"acme": make_key(page, stack, "counted"), "globex": make_key(rival, stack, "rivals-own")}
    used = [ask(stack, keys["acme"], text)["usage"] for text in ("One?", "Two?")]
    ask(stack, keys["globex"])
    page.goto(f"{stack.url}/usage/")
    row = page.get_by_role("row", name=re.compile(keys["acme"][4:12]))
    cells = row.get_by_role("cell").all_inner_texts()
    assert cells[0] == "2"
    assert int(cells[1].replace(",", "")) == sum(each["prompt_tokens"] for each in used)
    assert int(cells[3].replace(",", "")) == sum(each["completion_tokens"] for each in used)
    assert "rivals-own" not in page.content()
    assert keys["globex"][4:12] not in page.content()
    with page.expect_download() as file:
        page.get_by_role("button", name="Download CSV").click()
    with open(file.value.path(), encoding="utf-8", newline="") as lines:
        records = list(csv.DictReader(lines))
    assert {record["tenant"] for record in records} == {"acme"}
    assert number(page, "Generations") == len(records)
    assert number(page, "Prompt tokens") == sum(int(record["prompt_tokens"]) for record in records)
    assert number(page, "Output tokens") == sum(int(record["output_tokens"]) for record in records)
    page.get_by_label("From", exact=True).fill("2020-01-01")
    page.get_by_label("To", exact=True).fill("2020-01-31")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("Nothing was used in these days.")).to_be_visible()
    refused = member.page.goto(f"{stack.url}/usage/")
    assert refused is not None
    assert refused.status == 403


@pytest.mark.parametrize("language", ["en", "ko"])
@pytest.mark.parametrize("path", ["/members/", "/usage/", "/assistant/"])
def test_the_pages_of_a_tenant_fit_every_screen_and_name_everything(
    admin_of: Callable[..., Page], stack: Stack, path: str, language: str
) -> None:
    page = admin_of("acme")
    page.context.add_cookies([{"name": "django_language", "value": language, "url": stack.url}])
    page.goto(stack.url + path)
    assert page.locator("html").get_attribute("lang") == language
    assert page.evaluate(UNNAMED) == []
    for width in (1280, 768, 390):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CUT_OFF) == [], width


def test_the_page_of_the_api_tries_a_call(admin_of: Callable[..., Page], stack: Stack) -> None:
    """Without the internet: the fixture minds every other host."""
    key = make_key(admin_of("acme"), stack, "tried")
    page = admin_of("acme", **PHONE)
    page.goto(f"{stack.url}/v1/docs")
    page.get_by_role("button", name="Authorize").first.click()
    page.get_by_label("auth-bearer-value").fill(key)
    page.get_by_role("button", name="Apply credentials").click()
    page.get_by_role("button", name="Close").click()
    page.locator(
        "#operations-Chat .opblock-summary-control, [id^=operations-Chat] .opblock-summary-control"
    ).first.click()
    page.get_by_role("button", name="Try it out").click()
    body = page.locator("textarea.body-param__text")
    body.fill(body.input_value().replace("a name from GET /v1/models", model(stack, key)))
    page.get_by_role("button", name="Execute").click()
    expect(page.locator(".live-responses-table .response-col_status").nth(1)).to_contain_text("200")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
