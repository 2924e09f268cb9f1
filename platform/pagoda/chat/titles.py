"""A conversation's title: what the model is asked, and what becomes of its answer."""

from __future__ import annotations

import re
import unicodedata

from pagoda.chat.models import Conversation, Message
from pagoda_inference.protocol import ChatMessage, Sampling

LENGTH = 60
WORDS = 8
SENTENCE_WORDS = 4
"""A line of more words with a full stop is a sentence: a small model has answered the question instead of naming it."""

MAX_TOKENS = 16
EXCERPT = 600
"""Characters of the question that the model reads: a title needs no more."""

SYSTEM = (
    "You name conversations. Answer with a title of two to six words for the user's message, "
    "in the language of the message, and nothing else."
)
EXAMPLES = (
    ("How do I boil an egg so that the yolk stays soft?", "Soft-boiled eggs"),
    ("한국의 수도에 대해 알려줘", "한국의 수도"),
    ("Write a Python function that reverses a list", "Reversing a list in Python"),
)

SAMPLING = Sampling(max_tokens=MAX_TOKENS, temperature=0.0, stop=("\n",))

_PREFIX = re.compile(r"^(?:title|conversation title|topic|제목)\s*[:：-]\s*", re.IGNORECASE)
_MARKUP = re.compile(r"[*_`#>\[\]<]+")
_QUOTES = "\"'“”‘’«»「」『』 "


def prompt(question: str) -> tuple[ChatMessage, ...]:
    """Examples first: a small model follows them where it does not follow the instruction."""
    turns = [ChatMessage("system", SYSTEM)]
    for example, title in EXAMPLES:
        turns += [ChatMessage("user", example), ChatMessage("assistant", title)]
    return (*turns, ChatMessage("user", excerpt(question)))


def excerpt(question: str) -> str:
    """The beginning of the question, on one line."""
    return " ".join(question.split())[:EXCERPT]


def first_question(conversation: Conversation) -> str:
    """What the conversation began with; '' when it is empty."""
    questions = Message.objects.filter(conversation=conversation, role=Message.Role.USER, parent__isnull=True)
    return questions.order_by("created", "pk").values_list("content", flat=True).first() or ""


def choose(answer: str, question: str) -> str:
    """The model's title if it can pass for one, otherwise the question's first words."""
    title = tidy(answer)
    words = len(title.split())
    is_sentence = words > SENTENCE_WORDS and answer.strip().splitlines()[0].strip(_QUOTES).endswith((".", "!", "。"))
    return title if 0 < words <= WORDS and not is_sentence else from_question(question)


def tidy(text: str) -> str:
    """The first line of a model's answer without quotes, markup and control characters, LENGTH characters at most."""
    line = next((line for line in text.strip().splitlines() if line.strip()), "")
    line = "".join(" " if unicodedata.category(each).startswith("C") else each for each in line)
    line = _PREFIX.sub("", _MARKUP.sub("", line).strip(_QUOTES))
    return shorten(" ".join(line.split()).strip(_QUOTES).rstrip(".:,;·-–— "))


def from_question(question: str) -> str:
    """The first words of the question."""
    return tidy(question) or shorten(" ".join(question.split())) or "…"


def shorten(text: str) -> str:
    """Cut between words where there are any, and say so."""
    if len(text) <= LENGTH:
        return text
    cut = text[: LENGTH - 1]
    space = cut.rfind(" ")
    return (cut[:space] if space > LENGTH // 2 else cut).rstrip(" .,;:") + "…"
