"""The wire between the platform and an engine: every message, typed.

gRPC carries these structs as msgpack through custom serialisers (``wire``), so this package *is* the schema and no
generated code exists. Nothing here imports torch, transformers or Django: both sides can import it.

Everything a client names is looked up under ``account``: another tenant's id is answered like an unknown one.
"""

from pagoda_inference.protocol.generation import (
    Acknowledge,
    Attach,
    Cancel,
    ChatMessage,
    Command,
    Delivery,
    Delta,
    Detach,
    Event,
    Finished,
    FinishReason,
    Frame,
    Generate,
    Refused,
    Reply,
    RequestClass,
    Sampling,
    Started,
    Usage,
)
from pagoda_inference.protocol.message import Error, Message
from pagoda_inference.protocol.model import Detokenize, GetModels, ModelInfo, Text, Tokenize, Tokens
from pagoda_inference.protocol.pool import (
    Account,
    AccountReport,
    AccountsSet,
    PoolReport,
    Prefix,
    Publish,
    Published,
    PublishedPrefix,
    Purge,
    Purged,
    SetAccounts,
    Watch,
)
from pagoda_inference.protocol.wire import METHODS, PROTOCOL_VERSION, SERVICE, decoder, encode, method_path

__all__ = [
    "METHODS",
    "PROTOCOL_VERSION",
    "SERVICE",
    "Account",
    "AccountReport",
    "AccountsSet",
    "Acknowledge",
    "Attach",
    "Cancel",
    "ChatMessage",
    "Command",
    "Delivery",
    "Delta",
    "Detach",
    "Detokenize",
    "Error",
    "Event",
    "FinishReason",
    "Finished",
    "Frame",
    "Generate",
    "GetModels",
    "Message",
    "ModelInfo",
    "PoolReport",
    "Prefix",
    "Publish",
    "Published",
    "PublishedPrefix",
    "Purge",
    "Purged",
    "Refused",
    "Reply",
    "RequestClass",
    "Sampling",
    "SetAccounts",
    "Started",
    "Text",
    "Tokenize",
    "Tokens",
    "Usage",
    "Watch",
    "decoder",
    "encode",
    "method_path",
]
