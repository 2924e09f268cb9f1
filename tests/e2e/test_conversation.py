"""A member of a tenant holds a conversation in the browser, with the real model."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from chat_page import LONG_QUESTION, ChatPage
from playwright.sync_api import BrowserContext, expect
from stack import PATIENCE_S, Stack, until

pytestmark = [pytest.mark.browser, pytest.mark.model, pytest.mark.slow]


def test_an_answer_streams(member: ChatPage) -> None:
    member.ask(LONG_QUESTION)
    lengths: set[int] = set()

    def grown() -> bool:
        length = len(member.text())
        if member.state() == "streaming":
            lengths.add(length)
        return len(lengths - {0}) >= 5

    until(grown, PATIENCE_S, "the text came in one piece")
    member.stop()


def test_an_answer_says_what_it_took(member: ChatPage) -> None:
    member.ask("What is the capital of France? Answer in one sentence.")
    until(lambda: member.state() == "complete", 300, "the answer did not end")
    assert "Paris" in member.text()
    expect(member.usage).to_have_text(re.compile(r"\d+ prompt, \d+ cached"))
    expect(member.page.get_by_test_id("conversation-item").first).to_be_visible()


def test_the_next_turn_finds_the_conversation_warm(member: ChatPage) -> None:
    member.ask("What is the capital of France? Answer in one sentence.")
    member.wait_until_settled()
    member.ask("And the capital of Italy? Answer in one sentence.")
    member.wait_until_settled()
    expect(member.usage).to_have_count(2)
    told = member.usage.last.inner_text().replace(",", "")  # also those of thousands
    prompt, cached = map(int, re.findall(r"\d+", told)[:2])
    assert cached >= 16
    assert cached % 16 == 0
    assert cached < prompt


def test_a_refresh_in_the_middle_of_an_answer_loses_and_doubles_nothing(
    member: ChatPage, contexts: Callable[[str], BrowserContext], stack: Stack
) -> None:
    member.ask(LONG_QUESTION)
    before = member.wait_for_text(40)
    member.page.reload()
    after = member.wait_for_text(len(before))
    assert after.startswith(before[:40])
    assert member.state() == "streaming", "the answer ended before the refresh could be seen to work"
    member.wait_for_text(len(after) + 40)
    whole = member.stop()
    assert whole.startswith(before)
    assert member.questions.count() == 1
    assert member.answers.count() == 1

    stored = ChatPage(contexts("acme").new_page(), stack.url)
    stored.open(member.page.url)
    stored.wait_for_text(1)
    assert stored.state() == "cancelled"
    assert stored.text() == whole


def test_a_second_tab_shows_the_same_answer_as_it_is_written(member: ChatPage) -> None:
    member.ask(LONG_QUESTION)
    before = member.wait_for_text(40)
    second = ChatPage(member.page.context.new_page(), member.url)
    second.open(member.page.url)
    assert second.wait_for_text(len(before)).startswith(before[:30])
    assert second.state() == "streaming", "the second tab came too late to see it grow"
    second.wait_for_text(len(before) + 40)
    whole = member.stop()
    until(lambda: second.state() == "cancelled", PATIENCE_S, "the second tab did not hear of the end")
    assert second.text() == whole
    assert second.answers.count() == 1


def test_a_question_from_one_tab_appears_in_the_other(member: ChatPage) -> None:
    member.ask("Say hello.")
    member.wait_until_settled()
    second = ChatPage(member.page.context.new_page(), member.url)
    second.open(member.page.url)
    expect(second.questions).to_have_count(1)
    member.ask("Say goodbye.")
    expect(second.questions).to_have_count(2)
    assert member.wait_until_settled() == until(
        lambda: second.answers.count() == 2 and second.state() == "complete" and second.text(),
        PATIENCE_S,
        "no second answer",
    )


def test_stop_ends_the_answer_and_gives_the_blocks_back(member: ChatPage, stack: Stack) -> None:
    member.ask(LONG_QUESTION)
    member.wait_for_text(40)
    stopped = member.stop()
    expect(member.usage).to_have_text(re.compile(r"\d+ prompt, \d+ cached"))
    until(lambda: stack.active_blocks() == 0, PATIENCE_S, "blocks are still active")
    assert member.text() == stopped
    expect(member.continue_button).to_be_visible()


def test_continue_after_a_stop_goes_on_in_the_same_message(member: ChatPage) -> None:
    member.ask(LONG_QUESTION)
    member.wait_for_text(40)
    partial = member.stop()
    member.continue_button.click()
    whole = until(lambda: len(member.text()) > len(partial) + 20 and member.text(), PATIENCE_S, "nothing was added")
    assert whole.startswith(partial)
    assert member.answers.count() == 1


def test_regenerate_makes_a_branch_and_keeps_the_first_answer(member: ChatPage) -> None:
    member.ask("Name a fruit.")
    first = member.wait_until_settled()
    member.page.get_by_test_id("regenerate").last.click()
    expect(member.page.get_by_test_id("branch-prev")).to_be_visible()
    member.wait_until_settled()
    assert member.answers.count() == 1
    member.page.get_by_test_id("branch-prev").click()
    until(lambda: member.text() == first, PATIENCE_S, "the first answer is gone")


def test_korean_is_sent_once_though_enter_ends_the_composition(member: ChatPage, stack: Stack) -> None:
    """As a Korean input method types: the last syllable is still being composed when Enter is pressed. That Enter
    belongs to the input method; the next one sends."""
    text = "안녕하세요, 한국의 수도는 어디인가요"
    member.composer.click()
    keyboard = member.page.context.new_cdp_session(member.page)
    keyboard.send("Input.insertText", {"text": text})
    keyboard.send("Input.imeSetComposition", {"text": "요?", "selectionStart": 2, "selectionEnd": 2})
    # 229 is what a keydown says while an input method handles the key.
    for kind in ("rawKeyDown", "keyUp"):
        keyboard.send(
            "Input.dispatchKeyEvent",
            {"type": kind, "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 229, "nativeVirtualKeyCode": 229},
        )
    keyboard.send("Input.insertText", {"text": "요?"})
    expect(member.composer).to_have_value(text + "요?")
    assert member.questions.count() == 0, "the Enter that ends a composition must not send"
    member.page.keyboard.press("Enter")
    expect(member.questions).to_have_count(1)
    expect(member.composer).to_have_value("")
    expect(member.questions.get_by_test_id("message-content")).to_have_text(text + "요?")
    member.wait_for_text(2)
    assert member.questions.count() == 1
    member.stop_if_streaming()
    last = "Message.across_tenants.filter(role='assistant').latest('created').content"
    stored = stack.manage("shell", "-v", "0", "-c", f"from pagoda.chat.models import Message; print({last})")
    # The model itself may write what is no text; the page adds nothing to that.
    assert member.text().count("\ufffd") <= stored.count("\ufffd"), "a split character reached the page"


def test_shift_enter_makes_a_new_line_and_a_script_stays_text(member: ChatPage) -> None:
    member.composer.click()
    member.page.keyboard.type("<img src=x onerror=document.title='broken'>")
    member.page.keyboard.press("Shift+Enter")
    member.page.keyboard.type("second line")
    assert member.questions.count() == 0
    member.page.keyboard.press("Enter")
    expect(member.questions).to_contain_text("<img src=x")
    expect(member.questions).to_contain_text("second line")
    assert member.page.title() != "broken"


def test_a_rival_sees_nothing_of_it(member: ChatPage, rival: ChatPage) -> None:
    member.ask("This is for Acme alone.")
    member.wait_for_text(1)
    member.stop_if_streaming()
    address = member.page.url
    assert address.rstrip("/") != member.url
    rival.page.reload()
    expect(rival.composer).to_be_visible()
    assert "for Acme alone" not in rival.page.content()
    rival.page.goto(address)
    expect(rival.page.get_by_test_id("missing")).to_be_visible()
    expect(rival.questions).to_have_count(0)
