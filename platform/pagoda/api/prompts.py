"""From the messages of a request to the turns that the model reads.

Text that a client sends stays text: control tokens in it never become turns (see ``ChatMessage``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pagoda.api.requests.chat import AssistantMessage, Message, RefusalPart, SystemMessage, ToolMessage
from pagoda_inference.protocol import ChatMessage


def turns_of(messages: Sequence[Message]) -> tuple[ChatMessage, ...]:
    """The turns, in order. What tools returned is told as the user's turn: templates have roles for two."""
    return tuple(_turn(message) for message in messages)


def text_of(content: str | Sequence[Any] | None) -> str:
    """A content's text; its parts are lines."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "\n".join(_part(part) for part in content)


def opening_of(turns: Sequence[ChatMessage]) -> str:
    """What a conversation begins with, up to the first question: the same for all its calls."""
    opening = []
    for turn in turns:
        opening.append(turn.content)
        if turn.role == "user":
            break
    return "\x00".join(opening)


def _turn(message: Message) -> ChatMessage:
    if isinstance(message, SystemMessage):
        return ChatMessage("system", text_of(message.content))
    if isinstance(message, AssistantMessage):
        return ChatMessage("assistant", _answer(message))
    if isinstance(message, ToolMessage):
        result = {"tool_call_id": message.tool_call_id, "result": text_of(message.content)}
        return ChatMessage("user", f"Result of a function call:\n{json.dumps(result, ensure_ascii=False)}")
    return ChatMessage("user", text_of(message.content))


def _answer(message: AssistantMessage) -> str:
    texts = [text_of(message.content), message.refusal or ""]
    for call in message.tool_calls or ():
        named = {"name": call.function.name, "arguments": _arguments(call.function.arguments)}
        texts.append(json.dumps(named, ensure_ascii=False))
    return "\n".join(text for text in texts if text)


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _part(part: Any) -> str:
    return part.refusal if isinstance(part, RefusalPart) else part.text
