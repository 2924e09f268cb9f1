"""Chat turns to tokens and back, so that no text of a message can become a control token.

A chat template writes turns with control tokens (``<|im_start|>user``). Rendered and tokenised the usual way, a message
that *contains* ``<|im_end|>`` would end its turn and could write turns of its own. Here the template is rendered twice:
with the messages, and with unguessable placeholders in their place. Where both renderings hold the same control tokens
the usual tokenisation is safe (and identical to ``apply_chat_template``). Where they differ, only the control tokens of
the placeholder rendering are encoded as such and everything between them as plain text.

An answer whose own tokens are known keeps them: they take the place of its placeholder, and the text around it is
encoded as it was when the answer began.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from pagoda_inference.decoding.detokenizer import (
    LONGEST_CHARACTER,
    ByteDetokenizer,
    Detokenizer,
    WindowDetokenizer,
    byte_pieces,
)
from pagoda_inference.protocol import ChatMessage

if TYPE_CHECKING:
    from llguidance import LLTokenizer

FALLBACK_TEMPLATE = (
    "{{ bos_token or '' }}"
    "{% for message in messages %}{{ message['role'] | capitalize }}: {{ message['content'] }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
"""For a model without a chat template: ``User: …``, blank line, ``Assistant:``. Base models continue it."""


LONGEST_TOKEN = 128
"""Characters. Longer than the tokens of nearly all vocabularies, and of what a tokenizer may leave out of a text."""


NO_LONGEST_TOKEN = 1 << 30
"""Of a vocabulary without bytes: its token for what it does not know may stand for a text of any length."""


class ChatTemplateError(ValueError):
    """The model's chat template refuses these messages (for example a system turn in a model that has none)."""


class ChatTokenizer(Protocol):
    """What the engine needs from a tokenizer."""

    eos_token_ids: frozenset[int]
    """Any of them ends an answer."""
    longest_token: int
    """No token says more characters of a text."""

    def encode_chat(self, messages: Sequence[ChatMessage], continue_final: bool = False) -> list[int]:
        """Tokens of the turns and of the beginning of the assistant's next one.

        continue_final: the last message is the assistant's unfinished one; its turn is left open instead.
        Raises ChatTemplateError.
        """
        ...

    def encode(self, text: str) -> list[int]:
        """Tokens of plain text, with the model's beginning-of-sequence token. Never any other control token."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of tokens, without control tokens. Unknown ids have no text."""
        ...

    def detokenizer(self) -> Detokenizer:
        """A fresh incremental detokenizer; its pieces joined are ``decode`` of all tokens."""
        ...

    def grammar_tokenizer(self, vocabulary_size: int) -> LLTokenizer:
        """For grammars over the tokens of a model with so many. Takes a second. Raises ValueError where none can be."""
        ...


def generated_ids(message: ChatMessage, tokenizer: ChatTokenizer, plain_ids: Container[int]) -> list[int]:
    """The tokens that an assistant's answer was generated as, its end left out; [] where they do not say its text.

    plain_ids: the ids that are text, not control tokens. What an interrupted answer has of a last character that was
    never complete is left out, too.
    """
    if message.role != "assistant" or not message.content.strip():
        return []
    token_ids = list(message.token_ids)
    while token_ids and token_ids[-1] in tokenizer.eos_token_ids:
        token_ids.pop()
    if not all(id in plain_ids for id in token_ids):
        return []
    for length in range(len(token_ids), max(0, len(token_ids) - LONGEST_CHARACTER), -1):
        if tokenizer.decode(token_ids[:length]) == message.content:
            return token_ids[:length]
    return []


class TransformersTokenizer:
    """ChatTokenizer over a ``transformers`` tokenizer.

    tokenizer: as AutoTokenizer returns it. eos_token_ids: more ends than the tokenizer's own (generation config).
    """

    def __init__(self, tokenizer: Any, eos_token_ids: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        own = [] if tokenizer.eos_token_id is None else [int(tokenizer.eos_token_id)]
        self.eos_token_ids = frozenset([*own, *eos_token_ids])
        self._template = tokenizer.chat_template or FALLBACK_TEMPLATE
        self._control = {
            str(token): int(id)
            for id, token in tokenizer.added_tokens_decoder.items()
            if str(token).strip() and (token.special or str(token) in self._template)
        }
        alternatives = sorted(self._control, key=len, reverse=True)
        self._control_pattern = re.compile("|".join(map(re.escape, alternatives)) or r"(?!)")
        self._special = frozenset(id for id, token in tokenizer.added_tokens_decoder.items() if token.special)
        self._pieces = byte_pieces(tokenizer)
        longest = max(LONGEST_TOKEN, *map(len, tokenizer.get_vocab()))
        self.longest_token = longest if self._pieces is not None else NO_LONGEST_TOKEN

    def encode_chat(self, messages: Sequence[ChatMessage], continue_final: bool = False) -> list[int]:
        if not messages:
            raise ChatTemplateError("there are no messages")
        if continue_final and messages[-1].role != "assistant":
            raise ChatTemplateError("only an assistant's message can be continued")
        if continue_final and not messages[-1].content.strip():
            messages, continue_final = messages[:-1], False
        contents = [message.content for message in messages]
        placeholders = _Placeholders(contents)
        skeleton = self._render(messages, placeholders.hidden, generation_prompt=not continue_final)
        text = self._render(messages, contents, generation_prompt=not continue_final)
        generated = {index: ids for index, m in enumerate(messages) if (ids := generated_ids(m, self, self._plain_ids))}
        # A template that changes contents (leaves out what an answer thought, say) gets them as text.
        if generated and placeholders.reveal(skeleton) == text:
            return self._encode_generated(messages, generated, continue_final)
        if continue_final:
            skeleton = placeholders.cut_after_last(skeleton)
            text = placeholders.reveal(skeleton)
        return self._encode_rendered(text, skeleton, placeholders)

    def encode(self, text: str) -> list[int]:
        if not self._control_pattern.search(text):
            return list(self._tokenizer.encode(text))
        return [*self._tokenizer.encode(""), *self._encode_plain(text)]

    def decode(self, token_ids: Sequence[int]) -> str:
        if self._pieces is not None:
            detokenizer = self.detokenizer()
            return "".join(map(detokenizer.feed, token_ids)) + detokenizer.flush()
        return self._decode_window([id for id in token_ids if id not in self._special])

    def vocabulary(self) -> dict[str, int]:
        """Token -> id."""
        return dict(self._tokenizer.get_vocab())

    def detokenizer(self) -> Detokenizer:
        if self._pieces is not None:
            return ByteDetokenizer(*self._pieces)
        return WindowDetokenizer(self._decode_window, self._special)

    def grammar_tokenizer(self, vocabulary_size: int) -> LLTokenizer:
        from llguidance.hf import from_tokenizer

        if self._pieces is None:
            raise ValueError("it is not known of which bytes its tokens are")
        if not self.eos_token_ids:
            raise ValueError("it has no token that ends an answer")
        size = max(vocabulary_size, len(self._tokenizer))
        return from_tokenizer(self._tokenizer, n_vocab=size, eos_token=sorted(self.eos_token_ids))

    def _decode_window(self, token_ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(token_ids), clean_up_tokenization_spaces=False))

    def _render(self, messages: Sequence[ChatMessage], contents: Sequence[str], generation_prompt: bool) -> str:
        turns = [{"role": m.role, "content": content} for m, content in zip(messages, contents, strict=True)]
        try:
            rendered = self._tokenizer.apply_chat_template(
                turns, chat_template=self._template, tokenize=False, add_generation_prompt=generation_prompt
            )
        except Exception as error:  # whatever a template raises, of jinja2's or its own
            raise ChatTemplateError(f"the model's chat template refuses these messages: {error}") from error
        return str(rendered)

    def _encode_generated(
        self, messages: Sequence[ChatMessage], generated: Mapping[int, list[int]], continue_final: bool
    ) -> list[int]:
        """The turns with the tokens of ``generated`` (by the message's index) for the contents of their messages.

        What stands before such a content is encoded by itself, as it was when it was the prompt's end.
        """
        placeholders = _Placeholders([message.content for message in messages], generated)
        skeleton = self._render(messages, placeholders.hidden, generation_prompt=not continue_final)
        if continue_final:
            skeleton = placeholders.cut_after_last(skeleton)
        token_ids: list[int] = []
        for part, content_ids in placeholders.parts(skeleton):
            token_ids += self._encode_rendered(placeholders.reveal(part), part, placeholders)
            token_ids += content_ids
        return token_ids

    def _encode_rendered(self, text: str, skeleton: str, placeholders: _Placeholders) -> list[int]:
        """Tokens of the rendering ``text``, no content of which adds control tokens to those of ``skeleton``."""
        if self._control_pattern.findall(text) == self._control_pattern.findall(skeleton):
            return list(self._tokenizer.encode(text, add_special_tokens=False))
        return self._encode_skeleton(skeleton, placeholders)

    def _encode_skeleton(self, skeleton: str, placeholders: _Placeholders) -> list[int]:
        """Control tokens of ``skeleton`` as such; the text between them, messages included, as plain text."""
        token_ids: list[int] = []
        end = 0
        for match in self._control_pattern.finditer(skeleton):
            token_ids += self._encode_plain(placeholders.reveal(skeleton[end : match.start()]))
            token_ids.append(self._control[match.group()])
            end = match.end()
        return token_ids + self._encode_plain(placeholders.reveal(skeleton[end:]))

    def _encode_plain(self, text: str) -> list[int]:
        """Tokens of ``text`` with no control token among them, whatever the text is."""
        if not text:
            return []
        if self._plain_backend is not None:
            token_ids = list(self._plain_backend.encode(text, add_special_tokens=False).ids)
        else:
            token_ids = list(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))
        if not set(token_ids) & set(self._control.values()):
            return token_ids
        # The vocabulary itself spells a control token as one piece: cut the text inside it.
        match = self._control_pattern.search(text)
        cut = match.start() + 1 if match else 1
        if cut >= len(text):
            return [id for id in token_ids if id not in self._control.values()]
        return self._encode_plain(text[:cut]) + self._encode_plain(text[cut:])

    @cached_property
    def _plain_ids(self) -> frozenset[int]:
        """Every id of the vocabulary that is no control token."""
        return frozenset(self._tokenizer.get_vocab().values()) - self._special - frozenset(self._control.values())

    @cached_property
    def _plain_backend(self) -> Any | None:
        """The tokenizer without its added tokens: to it ``<|im_end|>`` is ten characters like any others."""
        import json

        from tokenizers import Tokenizer

        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        if backend is None:
            return None
        definition = json.loads(backend.to_str())
        definition["added_tokens"] = []
        definition["post_processor"] = None
        return Tokenizer.from_str(json.dumps(definition))


class _Placeholders:
    """Unguessable stand-ins for message contents.

    Leading and trailing white space of a content stays outside its placeholder, so that a template that trims messages
    trims the same either way. Blank contents are left as they are. The placeholder of a content in ``generated`` (its
    tokens, by index) stands for all of it.
    """

    def __init__(self, contents: Sequence[str], generated: Mapping[int, list[int]] = MappingProxyType({})) -> None:
        key = secrets.token_hex(16)
        self._contents: dict[str, str] = {}
        self._generated: dict[str, list[int]] = {}
        self._trailing = ""
        self.hidden: list[str] = []
        for index, content in enumerate(contents):
            placeholder = f"pagoda{key}n{index}e"
            core = content.strip()
            if index in generated:
                core = content
                self._generated[placeholder] = generated[index]
            if not core:
                self.hidden.append(content)
                continue
            self._contents[placeholder] = core
            start = content.index(core)
            self._trailing = content[start + len(core) :]
            self.hidden.append(content[:start] + placeholder + self._trailing)
        self._pattern = re.compile(rf"pagoda{key}n\d+e")

    def reveal(self, text: str) -> str:
        return self._pattern.sub(lambda match: self._contents[match.group()], text)

    def parts(self, skeleton: str) -> Iterator[tuple[str, list[int]]]:
        """``skeleton`` cut at the placeholders of generated contents: what stands before each, and its tokens."""
        end = 0
        for match in self._pattern.finditer(skeleton):
            if match.group() in self._generated:
                yield skeleton[end : match.start()], self._generated[match.group()]
                end = match.end()
        yield skeleton[end:], []

    def cut_after_last(self, skeleton: str) -> str:
        """``skeleton`` up to the end of the last content, its trailing white space included."""
        ends = [match.end() for match in self._pattern.finditer(skeleton)]
        if not ends:
            raise ChatTemplateError("the model's chat template leaves the last message out: it cannot be continued")
        return skeleton[: ends[-1]] + self._trailing
