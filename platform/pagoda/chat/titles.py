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
    line = "".join(" " if _is_control(each) else each for each in line.replace("\ufffd", ""))
    line = _PREFIX.sub("", _MARKUP.sub("", line).strip(_QUOTES))
    return shorten(" ".join(line.split()).strip(_QUOTES).rstrip(".:,;·-–— "))


def from_question(question: str) -> str:
    """The first words of the question."""
    return tidy(question) or shorten(" ".join(question.split())) or "…"


def shorten(text: str) -> str:
    """Cut between words where there are any, and say so."""
    if len(text) <= LENGTH:
        return text
    end = LENGTH - 1
    while end > 1 and _joins(text, end):
        end -= 1
    cut = text[:end]
    space = cut.rfind(" ")
    return (cut[:space] if space > LENGTH // 2 else cut).rstrip(" .,;:") + "…"


_JOINER = "\u200d"
_VARIATIONS = range(0xFE00, 0xFE10)
_TAGS = range(0xE0020, 0xE0080)
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_FLAG_LETTERS = range(0x1F1E6, 0x1F200)
_JAMO = range(0x1160, 0x1200)


def _is_control(character: str) -> bool:
    """No part of a written character: emoji are joined, and flags spelt, by format characters."""
    is_joint = character == _JOINER or ord(character) in _TAGS
    return unicodedata.category(character).startswith("C") and not is_joint


def _joins(text: str, at: int) -> bool:
    """Whether a cut before ``text[at]`` would part a character as people see it (Unicode Annex 29, common cases)."""
    following = ord(text[at])
    if text[at] == _JOINER or text[at - 1] == _JOINER or unicodedata.category(text[at]).startswith("M"):
        return True
    if any(following in part for part in (_VARIATIONS, _TAGS, _SKIN_TONES, _JAMO)):
        return True
    if following not in _FLAG_LETTERS:
        return False
    before = 0
    while before < at and ord(text[at - before - 1]) in _FLAG_LETTERS:
        before += 1
    return before % 2 == 1
