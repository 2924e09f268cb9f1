"""An engine's errors as the API tells them."""

from __future__ import annotations

import re

from pagoda.api import schema_faults
from pagoda.api.errors import ApiError
from pagoda_inference.protocol import Error

_CODES = {
    "invalid_request": "invalid_value",
    "context_length_exceeded": "context_length_exceeded",
    "kv_limit_exceeded": "kv_limit_exceeded",
    "queue_full": "queue_full",
    "unknown_account": "engine_unavailable",
    "engine_stopping": "engine_unavailable",
    "unavailable": "engine_unavailable",
    "not_found": "engine_unavailable",
    "seq_forgotten": "engine_unavailable",
    "model_error": "model_error",
}
_FIELD = re.compile(
    r"(?:a |the )?(top_k|min_p|presence_penalty|frequency_penalty|repetition_penalty|logit_bias|logprobs|grammar|stop"
    r"|n|seed|beam_width|length_penalty|max_tokens|temperature|top_p|ignore_eos)\b"
)


def refused(error: Error, grammar_param: str = "response_format", prompt_param: str | None = None) -> ApiError:
    """The engine's own sentence, which names limits and numbers; and the field it begins with.

    grammar_param, prompt_param: the fields that the grammar and the prompt come from. A ``[*]`` in the first stands for
    the one of several schemas that is at fault.
    """
    if error.code == "unknown_account" and "ended" in error.details:
        return ApiError("invalid_api_key", "The API key's tenant was suspended or deleted while this was written.")
    code = _CODES.get(error.code, "internal_error")
    message = error.message[:1].upper() + error.message[1:]
    if code == "invalid_value":
        field = _FIELD.match(error.message)
        param = field[1] if field else None
        message = schema_faults.told(error.message) or message
        if error.message.endswith("not supported yet"):
            code = "unsupported_value"
        return ApiError(code, message, _grammar_field(grammar_param, error) if param == "grammar" else param)
    too_long = code in ("context_length_exceeded", "kv_limit_exceeded")
    return ApiError(code, message, prompt_param if too_long else None)


def _grammar_field(param: str, error: Error) -> str:
    number = schema_faults.alternative(error.message)
    return param.partition("[*]")[0] if number is None else param.replace("[*]", f"[{number}]")


def unavailable() -> ApiError:
    """The engine went away, or cannot be reached."""
    return ApiError("engine_unavailable", "The engine cannot be reached now: try again.")
