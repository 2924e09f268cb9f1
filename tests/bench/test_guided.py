"""The benchmark's schemas: thirty, all of them schemas, and whatever our grammars allow of one is valid under it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import jsonschema_rs
import numpy as np
import pytest

from bench.guided import grammar_of, is_valid
from bench.guided_schemas import SCHEMAS
from pagoda_inference.decoding.grammar_trial import byte_tokenizer
from pagoda_inference.decoding.grammars import Grammars
from pagoda_inference.decoding.guide import Guide, allowed_tokens

END, VOCABULARY = 256, 257
MOST = 3000


@pytest.fixture(scope="module")
def grammars() -> Iterator[Grammars]:
    grammars = Grammars(lambda size: byte_tokenizer(size - END), VOCABULARY)
    yield grammars
    grammars.close()


def blindly(guide: Guide, seed: int) -> str:
    """A document of allowed bytes; it ends, and what is open is closed, wherever that may be."""
    rng = random.Random(seed)
    written = bytearray()
    while not guide.complete and len(written) < MOST:
        bits, failed = allowed_tokens([guide])
        assert not failed
        allowed = np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")).tolist()
        if END in allowed:
            break
        closing = [token for token in allowed if token in b'"}]' and rng.random() < 0.5]
        written.append(rng.choice(closing or allowed))
        guide.advance(written[-1:])
    return written.decode()


def test_there_are_thirty_and_each_is_a_schema() -> None:
    assert len(SCHEMAS) == 30
    for question, schema in SCHEMAS.values():
        assert question
        jsonschema_rs.validator_for(schema)


@pytest.mark.parametrize("name", SCHEMAS)
def test_whatever_is_allowed_is_valid(name: str, grammars: Grammars) -> None:
    schema = SCHEMAS[name][1]
    texts = [blindly(grammars.compiled(grammar_of(schema)).guide(), seed) for seed in range(4)]
    whole = [text for text in texts if len(text) < MOST]
    assert whole
    assert [text for text in whole if not is_valid(text, schema)] == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"sentiment": "glad"}'])
def test_what_is_no_document_of_a_schema_is_told_apart(text: str) -> None:
    schema = SCHEMAS["enum"][1]
    assert not is_valid(text, schema)
    assert is_valid(json.dumps({"sentiment": "neutral"}), schema)
