"""From published texts to the tokens that everything which begins with them has in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from pagoda_inference.model.tokenizer import ChatTokenizer
from pagoda_inference.preparation import InvalidCommand, encode_messages
from pagoda_inference.protocol import ChatMessage, Error, Prefix, Publish, Published, PublishedPrefix

PROBES = ("a", "7", "(", "\n\nz", "  q", "가")
"""What may follow a published text. Tokens can reach over its end into white space, letters, digits or signs that come
next: what all of these continuations share, every one does."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A Publish whose prefixes are tokens, and those that cannot be, with the reason."""

    publish: Publish
    refused: tuple[PublishedPrefix, ...]

    def merged(self, answer: Published) -> Published:
        """The engine's answer with what never reached it, in the order of the list.

        An answer about another version says nothing about this list, and is left as it is.
        """
        if answer.version != self.publish.version or not self.refused:
            return answer
        missing = tuple(each for each in self.refused if each not in answer.prefixes)
        return msgspec.structs.replace(answer, prefixes=answer.prefixes + missing)


def resolve(message: Publish, tokenizer: ChatTokenizer, *, context_length: int, vocabulary_size: int) -> Resolved:
    """Never raises: a prefix that is wrong is refused by itself."""
    resolved: list[Prefix] = []
    refused: list[PublishedPrefix] = []
    for prefix in message.prefixes:
        try:
            if any(prefix.id == other.id for other in resolved):
                raise InvalidCommand("invalid_request", "the id is in the list twice: give each prefix its own")
            tokens = prefix_tokens(prefix, tokenizer, vocabulary_size)
            if len(tokens) >= context_length:
                raise InvalidCommand(
                    "context_length_exceeded",
                    f"the text has {len(tokens)} tokens and the context {context_length}: shorten it",
                    tokens=len(tokens),
                    context_length=context_length,
                )
        except InvalidCommand as error:
            refused.append(PublishedPrefix(prefix.id, 0, 0, error.error))
        except Exception:
            refused.append(
                PublishedPrefix(prefix.id, 0, 0, Error("invalid_request", "the text could not be tokenised"))
            )
        else:
            resolved.append(Prefix(prefix.id, token_ids=tokens))
    return Resolved(Publish(message.version, tuple(resolved)), tuple(refused))


def prefix_tokens(prefix: Prefix, tokenizer: ChatTokenizer, vocabulary_size: int) -> tuple[int, ...]:
    """The tokens that whatever begins with this prefix begins with. Raises InvalidCommand."""
    given = [part for part in (prefix.messages, prefix.text, prefix.token_ids) if part is not None]
    if len(given) != 1:
        raise InvalidCommand("invalid_request", "exactly one of messages, text and token_ids must be given")
    if prefix.token_ids is not None:
        if not all(0 <= token < vocabulary_size for token in prefix.token_ids):
            raise InvalidCommand("invalid_request", f"token_ids must be in 0..{vocabulary_size - 1}")
        return prefix.token_ids
    if prefix.messages is not None:
        turns = prefix.messages
        return _common([encode_messages((*turns, ChatMessage("user", probe)), tokenizer) for probe in PROBES])
    return _common([tokenizer.encode((prefix.text or "") + probe) for probe in PROBES])


def _common(encodings: Sequence[Sequence[int]]) -> tuple[int, ...]:
    first = encodings[0]
    length = min(map(len, encodings))
    while not all(each[:length] == first[:length] for each in encodings):
        length -= 1
    return tuple(first[:length])
