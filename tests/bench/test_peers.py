"""Peers are processes that answer exactly what they are asked, or say why not; their environments are made once."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bench.memory import resident_bytes
from bench.peers import environments, llama_cpp_batches
from bench.peers.environments import python_of, requirements
from bench.peers.known import INSTALLED, PEERS, make_peer
from bench.peers.peer import Peer, PeerFailed, last_word

LENGTHS = "[[len(prompt)] * count for prompt, count in zip(prompts, outputs)]"


def peer(load: str) -> Peer:
    """A peer whose ``load`` is this expression."""
    return Peer("toy", [sys.executable, "-P", "-c", f"from bench.peers.child import serve\nserve({load})"])


@pytest.fixture
async def lengths() -> AsyncIterator[Peer]:
    """Answers with the length of the prompt, after a line that is none of an answer."""
    async with peer(f"lambda: lambda prompts, outputs: print('noise') or {LENGTHS}") as made:
        yield made


async def test_a_round_has_the_answers_in_the_order_of_the_prompts(lengths: Peer) -> None:
    for _ in range(2):
        answered = await lengths.run_round([[7, 7, 7], [7]], [2, 1])
        assert answered.token_ids == [[3, 3], [1]]
        assert answered.seconds >= 0
    assert lengths.start_s > 0


async def test_a_round_larger_than_a_pipe_arrives(lengths: Peer) -> None:
    answered = await lengths.run_round([list(range(40000))] * 2, [30000, 1])
    assert [len(answer) for answer in answered.token_ids] == [30000, 1]


async def test_an_answer_of_another_length_ends_the_peer_with_its_reason() -> None:
    async with peer("lambda: lambda prompts, outputs: [[1, 1]]") as short:
        with pytest.raises(PeerFailed, match=r"answers of \[2\] instead of \[3\] tokens"):
            await short.run_round([[1]], [3])


async def test_a_peer_that_does_not_start_says_why() -> None:
    with pytest.raises(PeerFailed, match="ZeroDivisionError"):
        async with peer("lambda: 1 / 0"):
            pass


async def test_processes_of_a_peer_end_with_it(tmp_path: Path) -> None:
    """The pipe that its own child holds open comes to its end."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = asyncio.StreamReader()
    end = os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), end)
    sleeping = f"__import__('subprocess').Popen(['sleep', '600'], stdout=open({str(pipe)!r}, 'w'))"
    async with peer(f"lambda: {sleeping} and (lambda prompts, outputs: {LENGTHS})") as parent:
        await parent.run_round([[1]], [1])
        assert not reader.at_eof()
    async with asyncio.timeout(60):
        assert await reader.read() == b""


def test_the_last_word_is_the_error() -> None:
    assert last_word("Traceback\nImportError: no wheel\n  warning: bye\n") == "ImportError: no wheel"
    assert last_word("one\ntwo\n\n") == "two"
    assert last_word("") == "it said nothing"


def test_memory_of_a_process_is_with_its_children() -> None:
    parent = os.getpid()
    before = resident_bytes(parent)
    command = [sys.executable, "-c", "x = b'1' * (64 << 20); print(1, flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert resident_bytes(child.pid) >= 64 << 20
        assert resident_bytes(parent) - before >= 48 << 20
        child.communicate(b"\n")


# --- environments -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", INSTALLED)
def test_every_requirement_of_a_peer_is_pinned_once(name: str) -> None:
    lines = [line for line in requirements(name).read_text().splitlines() if line and not line.startswith("#")]
    names = [line.split("==")[0] for line in lines]
    assert all(line.count("==") == 1 for line in lines)
    assert len(set(names)) == len(names)
    assert not {"torchvision", "torchaudio", "torchcodec"} & set(names)


def test_an_environment_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def run(command: list[str]) -> None:
        if command[2] == "venv":
            Path(command[3], "bin").mkdir(parents=True)
        ran.append(command)

    monkeypatch.setattr(environments, "_run", run)
    python = python_of("llama", tmp_path, say=lambda text: None)
    assert [command[2] for command in ran] == ["venv", "pip"]
    assert python_of("llama", tmp_path) == python
    assert len(ran) == 2


def test_an_installation_that_failed_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(command: list[str]) -> None:
        Path(command[3], "bin").mkdir(parents=True)
        raise PeerFailed("cannot be installed: no wheel")

    monkeypatch.setattr(environments, "_run", run)
    for _ in range(2):
        with pytest.raises(PeerFailed, match="no wheel"):
            python_of("llama", tmp_path, say=lambda text: None)


def test_a_command_that_fails_is_told_by_its_error() -> None:
    with pytest.raises(PeerFailed, match="cannot be installed: ValueError: no wheel"):
        environments._run([sys.executable, "-c", "raise ValueError('no wheel')"])


def test_every_peer_can_be_set_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "_run", lambda command: Path(tmp_path, command[3]).mkdir(exist_ok=True))
    made = [
        make_peer(kind, tmp_path, "bfloat16", slots=4, kv_tokens=64, home=tmp_path, say=lambda text: None)
        for kind in PEERS
    ]
    assert [each.name for each in made] == list(PEERS)


# --- llama.cpp's batches ----------------------------------------------------------------------------------------------


class CountingApi:
    """Remembers each batch as (token, position, sequence, wanted) and forgets sequences that are removed."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[int, int, int, int]]] = []
        self.known: dict[int, int] = {}

    def llama_decode(self, context: Any, batch: Any) -> int:
        rows = [
            (batch.token[row], batch.pos[row], batch.seq_id[row][0], batch.logits[row]) for row in range(batch.n_tokens)
        ]
        for _, position, sequence, _ in rows:
            assert position == self.known.get(sequence, 0)
            self.known[sequence] = position + 1
        self.batches.append(rows)
        return 0

    def llama_memory_seq_rm(self, memory: Any, sequence: int, begin: int, end: int) -> None:
        del self.known[sequence]


class Batch:
    def __init__(self, size: int) -> None:
        self.token, self.pos, self.n_seq_id, self.logits = ([0] * size for _ in range(4))
        self.seq_id = [[0] for _ in range(size)]
        self.n_tokens = 0


def test_llama_runs_prompts_in_pieces_beside_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_cpp_batches, "BATCH_TOKENS", 6)
    batches = object.__new__(llama_cpp_batches.Batches)
    api = CountingApi()
    batches._api, batches._batch, batches._slots = api, Batch(6), 2
    batches._context = batches._memory = None
    # The next token is the position of the last one.
    monkeypatch.setattr(batches, "_most_probable", lambda row: batches._batch.pos[row])
    prompts = [list(range(100, 104)), list(range(200, 209)), [300]]
    answers = batches.generate(prompts, [3, 2, 1])
    assert answers == [[3, 4, 5], [8, 9], [0]]
    assert api.known == {}
    assert max(len(rows) for rows in api.batches) == 6
    computed = [token for rows in api.batches for token, _, _, _ in rows]
    assert sorted(token for token in computed if token >= 100) == sorted(
        token for prompt in prompts for token in prompt
    )
