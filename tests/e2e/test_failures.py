"""Parts die in the middle of an answer; nobody loses a word."""

from __future__ import annotations

import time

import pytest
from chat_page import LONG_QUESTION, ChatPage
from playwright.sync_api import expect
from stack import PATIENCE_S, START_TIMEOUT_S, Stack, until

pytestmark = [pytest.mark.browser, pytest.mark.model, pytest.mark.slow]


def test_a_killed_engine_leaves_the_partial_text_and_continue_completes_it(member: ChatPage, stack: Stack) -> None:
    member.ask(LONG_QUESTION)
    before = member.wait_for_text(40)
    stack.kill("engine")
    killed = looked = time.monotonic()
    last = 0.0

    def interrupted() -> bool:
        nonlocal looked, last
        last, looked = looked, time.monotonic()
        return member.state() == "interrupted"

    until(interrupted, PATIENCE_S, "the answer is not marked as interrupted")
    assert last - killed <= 5, "more than 5 s later it still was not"
    partial = member.text()
    assert partial.startswith(before)
    expect(member.continue_button).to_be_visible()

    until(lambda: stack.pid("engine") and stack.is_ready(), START_TIMEOUT_S, "the engine did not come back")
    member.continue_button.click()
    whole = until(
        lambda: len(member.text()) > len(partial) + 20 and member.text(), PATIENCE_S, "Continue added nothing"
    )
    assert whole.startswith(partial)
    member.stop_if_streaming()
    assert member.answers.count() == 1
    pool = stack.pool()
    assert pool.free + sum(account.active + account.cached for account in pool.accounts) == pool.total


def test_a_killed_web_process_comes_back_and_the_answer_goes_on(member: ChatPage, stack: Stack) -> None:
    """The engine keeps what the dead recorder had not stored; the browser connects again by itself."""
    member.ask(LONG_QUESTION)
    before = member.wait_for_text(40)
    stack.kill("web")
    until(stack.is_ready, START_TIMEOUT_S, "the web process did not come back")
    whole = until(
        lambda: len(member.text()) > len(before) + 40 and member.text(), PATIENCE_S, "the answer does not go on"
    )
    assert whole.startswith(before)
    assert member.state() in ("streaming", "complete")
    member.stop_if_streaming()
    assert member.text().startswith(whole)
    assert member.answers.count() == 1
    assert member.questions.count() == 1
