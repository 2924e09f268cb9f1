"""What a client may send, as typed structs: docs/websocket.md, checked."""

from __future__ import annotations

import json
import re
import uuid
from typing import Annotated, Any, NoReturn

import msgspec
from msgspec import Meta

FRAME_BYTES = 256 * 1024
CONTENT_CHARACTERS = 100_000
VERSION = 1

ClientId = Annotated[str, Meta(min_length=8, max_length=64)]
Seq = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class RequestRefused(Exception):
    """A request that cannot be carried out. It changed nothing.

    code, message, field, retry_after_s: as in an ``error`` message.
    """

    def __init__(self, code: str, message: str, field: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
        self.retry_after_s = retry_after_s


class SamplingChoice(msgspec.Struct, frozen=True):
    """How the answer is chosen; what is None takes the chat's default."""

    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    stop: Annotated[list[Annotated[str, Meta(min_length=1, max_length=100)]], Meta(max_length=4)] | None = None


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    version: int
    api_key: str | None = None
    tenant: str | None = None


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    pass


class ListConversations(msgspec.Struct, frozen=True, tag="conversation.list"):
    before: str | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 50


class OpenConversation(msgspec.Struct, frozen=True, tag="conversation.open"):
    conversation_id: uuid.UUID


class RenameConversation(msgspec.Struct, frozen=True, tag="conversation.rename"):
    conversation_id: uuid.UUID
    title: Annotated[str, Meta(max_length=200)]


class DeleteConversation(msgspec.Struct, frozen=True, tag="conversation.delete"):
    conversation_id: uuid.UUID


class CreateMessage(msgspec.Struct, frozen=True, tag="message.create"):
    client_id: ClientId
    content: Annotated[str, Meta(min_length=1)]
    conversation_id: uuid.UUID | None = None
    parent_id: uuid.UUID | None = None
    sampling: SamplingChoice = SamplingChoice()


class RegenerateMessage(msgspec.Struct, frozen=True, tag="message.regenerate"):
    client_id: ClientId
    message_id: uuid.UUID
    sampling: SamplingChoice = SamplingChoice()


class ContinueMessage(msgspec.Struct, frozen=True, tag="message.continue"):
    client_id: ClientId
    message_id: uuid.UUID
    sampling: SamplingChoice = SamplingChoice()


class AttachGeneration(msgspec.Struct, frozen=True, tag="generation.attach"):
    generation_id: uuid.UUID
    after_seq: Seq = 0


class DetachGeneration(msgspec.Struct, frozen=True, tag="generation.detach"):
    generation_id: uuid.UUID


class StopGeneration(msgspec.Struct, frozen=True, tag="generation.stop"):
    generation_id: uuid.UUID


Submit = CreateMessage | RegenerateMessage | ContinueMessage
Request = (
    Ping
    | ListConversations
    | OpenConversation
    | RenameConversation
    | DeleteConversation
    | CreateMessage
    | RegenerateMessage
    | ContinueMessage
    | AttachGeneration
    | DetachGeneration
    | StopGeneration
)

_FIELD = re.compile(r"at `\$\.?([^`]*)`|field `([^`]+)`")


def read_frame(text: str | None) -> dict[str, Any]:
    """A frame as an object. Raises RequestRefused."""
    if text is None:
        raise RequestRefused("invalid", "A frame must be text, not binary.")
    if len(text) > FRAME_BYTES or len(text.encode("utf-8", "surrogatepass")) > FRAME_BYTES:
        raise RequestRefused("too_large", f"A frame may be at most {FRAME_BYTES} bytes.")
    try:
        message = msgspec.json.decode(text)
    except UnicodeError:
        raise RequestRefused("invalid", _HALF_A_PAIR) from None
    except RecursionError:
        raise RequestRefused("invalid", "The frame is nested too deeply.") from None
    except msgspec.DecodeError:
        raise RequestRefused("invalid", _no_json(text)) from None
    if not isinstance(message, dict):
        raise RequestRefused("invalid", "A frame must be one JSON object.")
    return message


def read_hello(message: dict[str, Any]) -> Hello:
    """The first message. Raises RequestRefused."""
    return _convert(message, Hello)


def read_request(message: dict[str, Any]) -> Request:
    """Any later message. Raises RequestRefused with the field that is missing or wrong."""
    request = _convert(message, Request)
    if isinstance(request, CreateMessage):
        if len(request.content) > CONTENT_CHARACTERS:
            raise RequestRefused("too_large", f"A message may have {CONTENT_CHARACTERS} characters at most.", "content")
        if not request.content.strip():
            raise RequestRefused("invalid", "The message is empty.", "content")
        _refuse_nul(request.content, "content")
    if isinstance(request, RenameConversation):
        _refuse_nul(request.title, "title")
    if isinstance(request, Submit):
        _refuse_nul(request.client_id, "client_id")
        for text in request.sampling.stop or ():
            _refuse_nul(text, "sampling.stop")
    return request


def _convert(message: dict[str, Any], kind: Any) -> Any:
    # A null is the same as an absent field, except where null is a value of its own (and the default).
    present = {name: value for name, value in message.items() if value is not None}
    try:
        return msgspec.convert(present, kind)
    except msgspec.ValidationError as error:
        found = _FIELD.search(str(error))
        field = next((group for group in found.groups() if group), None) if found else None
        if field == "type":
            what = "A message needs a type" if "type" not in present else "There is no message of this type"
            raise RequestRefused(
                "invalid", f"{what}: the protocol's version {VERSION} has those there are.", "type"
            ) from None
        raise RequestRefused("invalid", _told(str(error), field), field) from None


_KINDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "array": "a list",
    "object": "an object",
    "uuid": "an id (a UUID)",
    "bool": "true or false",
    "null": "null",
}
_EXPECTED = re.compile(r"Expected `([a-z| ]+)`(?: of (length)|, got| (>=|<=)|$| -)(?: (>=|<=))?(?: ?(-?[\d.e+]+))?")


def _told(fault: str, field: str | None) -> str:
    """What msgspec says of a field, for whoever wrote the message."""
    if fault.startswith("Object missing required field"):
        return f"This field is required: {field}."
    if fault.startswith("Invalid UUID"):
        return "This must be an id (a UUID)."
    found = _EXPECTED.match(fault)
    if found is None:
        return "This is not what the field takes."
    kind = " or ".join(_KINDS.get(each.strip(), each.strip()) for each in found[1].split("|") if each.strip() != "null")
    bound, number = found[3] or found[4], found[5]
    if not (bound and number):
        return f"This must be {kind}."
    limit = f"at {'least' if bound == '>=' else 'most'} {number}"
    parts = "entries" if found[1].strip().startswith("array") else "characters"
    parts = {"entries": "entry", "characters": "character"}[parts] if number == "1" else parts
    return f"This must be {kind} of {limit} {parts}." if found[2] else f"This must be {kind}, {limit}."


class _NoNumber(Exception):
    """NaN or an infinity, which some writers of JSON let pass."""


def _refuse_constant(name: str) -> NoReturn:
    raise _NoNumber(name)


def _no_json(text: str) -> str:
    """What keeps a frame from being JSON, as far as its writer may not see it."""
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except _NoNumber:
        return "A frame must be JSON, which has neither NaN nor Infinity."
    except (ValueError, RecursionError):
        return "A frame must be one JSON object."
    # The one thing that the standard library reads and the decoder does not.
    return _HALF_A_PAIR


_HALF_A_PAIR = "The frame has half a surrogate pair in a text, which is no character."


def _refuse_nul(text: str, field: str) -> None:
    if "\x00" in text:
        raise RequestRefused("invalid", "The text contains a NUL character.", field)
