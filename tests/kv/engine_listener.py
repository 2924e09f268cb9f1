"""Hears every event of an engine, and compares it with what the model answers alone."""

from __future__ import annotations

from collections import Counter

from pagoda_inference.beam_generation import BeamGeneration
from pagoda_inference.engine import Outcome
from pagoda_inference.generation import Generation
from pagoda_inference.generation_log import GenerationLog
from pagoda_inference.model.echo import EchoTokenizer
from pagoda_inference.protocol import Delta, Error, Finished, Generate, Started
from pagoda_inference.scheduling.sequence import Request
from tests.kv.engine_reference import Reference, Search
from tests.kv.watched_backend import WatchedBackend

TOKENIZER = EchoTokenizer()


class Job:
    """One generation, and what has been heard of it.

    outputs: tokens by answer. searched: steps of its beam search that were compared. told: answers, of several, whose
    end was told.
    """

    def __init__(self, command: Generate, generation: Generation) -> None:
        self.command = command
        self.generation = generation
        self.request = generation.request
        self.prompt = list(command.prompt_token_ids or ())
        self.outputs: dict[int, list[int]] = {}
        self.texts: dict[int, str] = {}
        self.seq = 0
        self.started: Started | None = None
        self.finished: Finished | None = None
        self.refused: Error | None = None
        self.searched = 0
        self.told: set[int] = set()

    @property
    def live(self) -> bool:
        return self.finished is None and self.refused is None

    @property
    def tokens(self) -> list[int]:
        """The conversation up to here."""
        return self.prompt + self.outputs.get(0, [])


class Listener:
    """Of one engine. Raises AssertionError on anything that is not what it should be."""

    def __init__(self, backend: WatchedBackend, reference: Reference, fired: Counter[str]) -> None:
        self._backend = backend
        self._reference = reference
        self._fired = fired
        self._by_log: dict[GenerationLog, Job] = {}
        self._searching: dict[Request, Job] = {}
        self._faults_seen = 0

    def listen(self, log: GenerationLog, job: Job) -> None:
        self._by_log[log] = job
        self._searching[job.request] = job

    def hear(self, outcomes: list[Outcome]) -> None:
        """What the engine delivers."""
        assert not self._backend.wrong, self._backend.wrong
        for log, outcome in outcomes:
            job = self._by_log[log]
            assert job.live, "something after the end"
            if isinstance(outcome, Error):
                assert job.seq == 0, "refused after it was begun"
                job.refused = outcome
                self._fired[f"refused {outcome.code}"] += 1
                continue
            job.seq += 1
            assert outcome.seq == job.seq, "a gap in the events"
            assert outcome.id == job.command.id
            if isinstance(outcome, Started):
                self._hear_started(job, outcome)
            elif isinstance(outcome, Delta):
                self._hear_delta(job, outcome)
            else:
                self._hear_finished(job, outcome)

    def _hear_started(self, job: Job, event: Started) -> None:
        assert job.started is None
        job.started = event
        assert event.prompt_tokens == len(job.prompt)
        assert event.cached_tokens % self._backend.block_size == 0
        assert event.cached_tokens <= len(job.prompt) - 1
        self._fired["hit"] += event.cached_tokens > 0
        chain = job.request.sequences[0].chain
        self._fired["published hit"] += event.cached_tokens > 0 and chain is not None and chain.public > 0

    def _hear_delta(self, job: Job, event: Delta) -> None:
        assert job.started is not None, "an answer before the start"
        job.texts[event.index] = job.texts.get(event.index, "") + event.text
        output = job.outputs.setdefault(event.index, [])
        output += event.token_ids
        assert event.index not in job.told, "more of an answer that has ended"
        if event.finish_reason is not None:
            job.told.add(event.index)
        if job.command.sampling.beam_width:
            return
        sampler = job.request.samplers[event.index]
        alone = self._reference.alone(job.prompt, sampler)
        for place in range(len(output) - len(event.token_ids), len(output)):
            assert output[place] == alone.token(place), f"answer {event.index} of {job.request} differs at {place}"

    def _hear_finished(self, job: Job, event: Finished) -> None:
        job.finished = event
        usage = event.usage
        self._fired[f"finished {event.reason}"] += 1
        if event.error is not None:
            self._fired[f"error {event.error.code}"] += 1
            if event.error.code == "model_error":
                assert self._backend.faults > self._faults_seen, f"{job.request}: an error of the engine's own"
                self._faults_seen += 1
        if job.started is None:
            assert event.reason in ("cancelled", "error")
            return
        assert usage.cached_tokens == job.started.cached_tokens
        if isinstance(job.generation, BeamGeneration):
            if event.reason != "error":
                self._compare_search(job)
            return
        if job.command.sampling.n > 1 and event.reason != "error":
            assert job.told == set(range(job.command.sampling.n)), "an answer whose end was not told"
        assert usage.output_tokens == sum(map(len, job.outputs.values()))
        limit = job.request.max_tokens
        if event.reason == "length" and usage.output_tokens < limit * job.command.sampling.n:
            self._fired["exhausted or partly stopped"] += 1
        for index, output in job.outputs.items():
            if event.reason in ("stop", "length"):
                assert job.texts[index] == TOKENIZER.decode(output), "text and tokens differ"

    def _compare_search(self, job: Job) -> None:
        generation = job.generation
        assert isinstance(generation, BeamGeneration)
        steps = None if generation._search.over else job.request.sequences[0].output_length
        found = self._search(job).found(steps)
        told = [job.outputs[index] for index in sorted(job.outputs)]
        assert told == [list(hypothesis.token_ids) for hypothesis in found], "other answers than alone"
        self._fired["beams found" if steps is None else "beams cut short"] += 1

    def check_searches(self, running: list[Request]) -> None:
        """The open beams of running searches are those of the reference."""
        assert not self._backend.wrong, self._backend.wrong
        for request in running:
            if request.beam_width and request.sequences[0].output_length:
                job = self._searching[request]
                length = request.sequences[0].output_length
                if job.searched != length:
                    job.searched = length
                    open_beams = [sequence.tokens[len(job.prompt) :] for sequence in request.sequences]
                    assert open_beams == self._search(job).live(length), "other beams than alone"

    def _search(self, job: Job) -> Search:
        sampling = job.command.sampling
        limit = job.request.max_tokens
        return self._reference.search(
            job.prompt, sampling.beam_width, sampling.n, sampling.length_penalty, sampling.early_stopping, limit
        )
