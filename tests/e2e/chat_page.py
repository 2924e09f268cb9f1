"""The browser chat as a person sees it, by its data-testid names."""

from __future__ import annotations

from contextlib import suppress

from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Locator, Page, expect
from stack import PATIENCE_S, until

ANSWER_TIMEOUT_MS = 300_000
"""A long answer on two busy cores."""

LONG_QUESTION = "Tell me a long story about a lighthouse keeper and the sea."
"""SmolLM2 answers it with a thousand tokens: there is always time to act in the middle, and a Stop ends it."""


def sign_in(page: Page, url: str, email: str, password: str) -> None:
    page.set_default_timeout(PATIENCE_S * 1000)
    page.goto(f"{url}/accounts/login/")
    page.fill("input[name=login]", email)
    page.fill("input[name=password]", password)
    page.press("input[name=password]", "Enter")
    page.wait_for_url(lambda address: "/accounts/login" not in address)


class ChatPage:
    """One tab."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url

    def open(self, address: str | None = None) -> None:
        self.page.goto(address or self.url)
        expect(self.composer).to_be_visible()

    @property
    def composer(self) -> Locator:
        return self.page.get_by_test_id("composer")

    @property
    def questions(self) -> Locator:
        return self.page.get_by_test_id("message-user")

    @property
    def answers(self) -> Locator:
        return self.page.get_by_test_id("message-assistant")

    @property
    def usage(self) -> Locator:
        return self.page.get_by_test_id("message-usage")

    @property
    def stop_button(self) -> Locator:
        return self.page.get_by_test_id("stop")

    @property
    def continue_button(self) -> Locator:
        return self.page.get_by_test_id("continue")

    def ask(self, text: str) -> None:
        """Type a question and send it; returns when it is on the page."""
        before = self.questions.count()
        self.composer.fill(text)
        self.page.get_by_test_id("send").click()
        expect(self.questions).to_have_count(before + 1)

    def text(self) -> str:
        """The last answer with its white space folded; '' while there is none."""
        contents = self.answers.last.get_by_test_id("message-content")
        return " ".join(contents.inner_text().split()) if contents.count() else ""

    def wait_for_text(self, characters: int) -> str:
        """The answer once it has at least so many characters."""
        return until(
            lambda: len(self.text()) >= characters and self.text(), PATIENCE_S, f"no {characters} characters yet"
        )

    def state(self) -> str:
        """Of the last answer: streaming, complete, cancelled, interrupted or failed; '' while there is none."""
        return (self.answers.last.get_attribute("data-state") or "") if self.answers.count() else ""

    def wait_until_settled(self) -> str:
        """The whole answer, once nothing streams any more."""
        expect(self.page.locator("[data-testid=message-assistant][data-state=streaming]")).to_have_count(
            0, timeout=ANSWER_TIMEOUT_MS
        )
        return self.text()

    def stop(self) -> str:
        """Press Stop; returns the text that was written until then."""
        self.stop_button.click()
        until(lambda: self.state() == "cancelled", PATIENCE_S, "the answer was not stopped")
        return self.text()

    def stop_if_streaming(self) -> None:
        """Press Stop unless the answer ends by itself first."""

        def ended() -> bool:
            if self.state() == "streaming":
                with suppress(PlaywrightError):
                    self.stop_button.click(timeout=3_000)
            return self.state() != "streaming"

        until(ended, PATIENCE_S, "the answer was not stopped")
