"""What OpenAI's API takes in a field and this installation does not offer: told apart from what nobody takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_PARTS = ("image_url", "input_audio", "file", "input_image", "input_file", "refusal")
_TOOLS = (
    *("custom", "web_search", "web_search_preview", "file_search", "code_interpreter", "computer"),
    *("computer_use_preview", "image_generation", "local_shell", "shell", "apply_patch", "mcp"),
)
_CHOICES = ("allowed_tools", "function")
_ITEMS = ("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output", "reasoning")
_MORE_ITEMS = ("item_reference", "computer_call", "computer_call_output", "file_search_call", "web_search_call")
_INCLUDED = (
    *("file_search_call.results", "web_search_call.results", "web_search_call.action.sources"),
    *("message.input_image.image_url", "computer_call_output.output.image_url"),
    *("code_interpreter_call.outputs", "reasoning.encrypted_content"),
)

_ELSEWHERE: dict[str, tuple[Any, ...]] = {
    "type": (*_PARTS, *_TOOLS, *_CHOICES, *_ITEMS, *_MORE_ITEMS),
    "role": ("function",),
    "modalities": ("audio",),
    "background": (True,),
    "truncation": ("auto",),
    "service_tier": ("flex", "scale", "priority"),
    "include": _INCLUDED,
    "tool_choice": ("required",),
}
"""Field -> values. Of a list, the values of its items."""


def is_offered_elsewhere(path: Sequence[Any], value: Any) -> bool:
    """path: to a field that does not take this value, or to an item of it."""
    name = next((step for step in reversed(path) if isinstance(step, str)), None)
    if name == "tool_choice" and isinstance(value, dict):
        return True
    return isinstance(value, str | bool) and value in _ELSEWHERE.get(str(name), ())
