"""What an engine does while its model runs, step by step: what it tells, takes, plans, and leaves for later."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import product

import pytest

from pagoda_inference.decoding.sampling import Sampler
from pagoda_inference.model.backend import Result
from pagoda_inference.model.echo import END
from pagoda_inference.protocol import Account, Prefix, Publish, Purge, Sampling, SetAccounts
from pagoda_inference.scheduling.limits import StepLimits
from pagoda_inference.scheduling.scheduler import Produced
from pagoda_inference.scheduling.sequence import RequestState
from pagoda_inference.scheduling.step import Step
from tests.kv.engine_in_flight import InFlightWorld
from tests.kv.engine_reference import Reference
from tests.kv.engine_shape import Shape, SteadyPace
from tests.kv.engine_world import TENANTS, EngineWorld

REFERENCE = Reference()
ROOMY = Shape(blocks=128, block_size=4, budget=24, slots=8)
LONG = Sampling(max_tokens=40, ignore_eos=True)


def a_world(shape: Shape = ROOMY) -> InFlightWorld:
    return InFlightWorld(shape, REFERENCE, Counter())


def everybody_asks(world: EngineWorld) -> None:
    """Answers of different lengths; one that comes to an end of its own, which nobody can foresee."""
    for number, tenant in enumerate([*TENANTS, *TENANTS[:2]]):
        sampling = Sampling(max_tokens=150) if number == 3 else Sampling(max_tokens=9 + 7 * number, ignore_eos=True)
        world.add(tenant, b"abcd"[number % 4 :] * 2, sampling)


def length_of_answer(prompt: Sequence[int]) -> int:
    """Tokens up to the model's end, 40 where that is later."""
    alone = REFERENCE.alone(prompt, Sampler())
    return next((place + 1 for place in range(40) if alone.token(place) == END), 40)


def decoding(world: EngineWorld) -> None:
    """Until all prompts are done, and then one step more."""
    while len(world.scheduler.waiting) or not all(request.decoding for request in world.scheduler.running):
        world.step()
    world.step()


class Books:
    """What each step of an engine computed, and what everybody was charged by then."""

    def __init__(self, world: EngineWorld) -> None:
        self.steps: list[list[tuple[str, str, int, int]]] = []
        self.charges: list[list[tuple[str, float, int, int]]] = []
        complete = world.scheduler.complete

        def watched(step: Step, results: list[Result], now: float) -> Produced:
            ids = [(chunk.sequence.request.account, chunk.sequence.request.id) for chunk in step.chunks]
            sizes = [(chunk.start, chunk.count) for chunk in step.chunks]
            self.steps.append([(*id, *size) for id, size in zip(ids, sizes, strict=True)])
            produced = complete(step, results, now)
            self.charges.append(
                [(each.id, each.service, each.tokens_in, each.tokens_out) for each in world.pool.accounts]
            )
            return produced

        world.scheduler.complete = watched  # type: ignore[method-assign]


@pytest.mark.parametrize("limits", [StepLimits(), StepLimits(1.0, 0.1, 0.2, 0.05)], ids=["unlimited", "by turns"])
@pytest.mark.parametrize("blocks", [128, 9], ids=["roomy", "tight"])
@pytest.mark.parametrize("drafter", ["", "oracle", "model"])
def test_steps_and_charges_are_those_of_an_engine_that_waits(limits: StepLimits, blocks: int, drafter) -> None:
    shape = Shape(blocks=blocks, block_size=4, budget=24, slots=4, limits=limits, drafter=drafter)
    books = []
    for world in (EngineWorld(shape, REFERENCE, Counter()), a_world(shape)):
        books.append(Books(world))
        everybody_asks(world)
        world.step(12)
        world.add("acme", b"dcba", Sampling(max_tokens=3), request_class="batch")
        world.add("initech", b"bbbb", Sampling(max_tokens=150, ignore_eos=True))
        world.step(5)
        world.abort(world.jobs[4])
        world.run_until_idle()
        world.close()
    waiting, beside = books
    assert beside.steps == waiting.steps
    assert beside.charges == waiting.charges
    if blocks == 128 and limits == StepLimits() and not drafter:
        assert world.fired["plan kept"] > 10
        assert world.fired["taken a step early"] > 3


def test_an_answer_with_an_end_of_its_own_is_left_out_of_the_step_that_was_planned() -> None:
    ends = next(prompt for prompt in product(b"abcd", repeat=4) if length_of_answer(prompt) < 35)
    world = a_world()
    rivals = [world.add(tenant, b"dcba", Sampling(max_tokens=60, ignore_eos=True)) for tenant in TENANTS[1:]]
    job = world.add("acme", ends, Sampling(max_tokens=60))
    world.step(40)
    assert job.finished is not None
    assert job.finished.reason == "stop"
    assert world.fired["ended while the next step was planned"] == 1
    assert all(rival.live for rival in rivals)
    world.close()
    assert world.backend.rows == sum(len(each.outputs[0]) for each in world.jobs), "a step computed what had ended"


def test_what_a_step_gave_is_told_while_the_next_one_runs() -> None:
    world = a_world()
    job, rival = world.add("acme", b"abcd", LONG), world.add("globex", b"dcba", LONG)
    decoding(world)
    engine, heard = world.engine, len(job.tokens)
    engine.turn()
    assert len(job.tokens) == heard, "told before the next step was launched"
    told: list[int] = []
    world.backend.on_launch = lambda: told.append(len(job.tokens))
    engine.turn()
    assert told == [heard], "the launch waited for listeners"
    assert len(job.tokens) == len(rival.tokens) == heard + 1
    world.run_until_idle()
    assert not world.live, "the last step was told to nobody"


def test_a_request_that_comes_in_flight_is_in_the_next_step() -> None:
    world = a_world()
    world.add("acme", b"abcd", LONG)
    decoding(world)
    world.backend.on_launch = lambda: world.submit("globex", b"dcba", LONG)
    world.step()
    rival = world.jobs[-1]
    assert rival.request.state is RequestState.WAITING, "not heard of while the step was in flight"
    world.step()
    assert rival.request.state is RequestState.RUNNING
    world.close()


@pytest.mark.parametrize("then", ["nothing", "the same id again"])
def test_a_cancel_in_flight_ends_the_answer_with_the_step(then: str) -> None:
    world = a_world()
    job, rival = world.add("acme", b"abcd", LONG), world.add("globex", b"dcba", LONG)
    decoding(world)
    held = len(job.request.sequences[0].table.blocks)

    def ask() -> None:
        world.engine.cancel(("acme", job.command.id))
        if then != "nothing":
            world.submit("acme", b"abcd", LONG, id=job.command.id)

    assert world.in_flight(ask)
    assert job.finished is not None
    assert job.finished.reason == "cancelled"
    assert job.finished.usage.blocks_freed in (held, held + 1)
    assert job.finished.usage.output_tokens == len(job.outputs[0])
    assert rival.live
    if then != "nothing":
        assert world.jobs[-1].live, "the cancel came after what was asked behind it"
    world.close()


def test_a_deleted_tenant_ends_with_the_step_and_leaves_nothing() -> None:
    world = a_world()
    job, rival = world.add("acme", b"abcd", LONG), world.add("globex", b"dcba", LONG)
    decoding(world)
    message = SetAccounts(1, (Account("globex"),))
    assert world.in_flight(lambda: world.engine.set_accounts(message))
    assert job.finished is not None
    assert job.finished.error is not None
    assert job.finished.error.code == "unknown_account"
    assert not any(ledger.id == "acme" for ledger in world.pool.accounts)
    assert rival.live
    world.close()


def test_a_quota_lowered_in_flight_preempts_behind_the_step_and_the_answer_is_the_same() -> None:
    world = a_world()
    jobs = [world.add("acme", letters * 4, LONG) for letters in (b"ab", b"cd")]
    world.add("globex", b"dcba", LONG)
    decoding(world)
    active = sum(len(job.request.sequences[0].table.blocks) for job in jobs)
    message = SetAccounts(1, (Account("acme", limit=active - 1), Account("globex"), Account("initech")))
    assert world.in_flight(lambda: world.engine.set_accounts(message))
    assert [job.request.preemptions for job in jobs] == [0, 1]
    world.close()  # each token was compared with the reference


def test_a_purge_in_flight_takes_effect_at_once_and_what_runs_leaves_nothing() -> None:
    world = a_world()
    job, rival = world.add("acme", b"abcd" * 3, LONG, lineage="talk"), world.add("globex", b"abcd" * 3, LONG)
    decoding(world)
    purged: list = []
    assert world.in_flight(lambda: purged.append(world.engine.purge(Purge("acme", ("talk",)))))
    assert purged[0].result(timeout=0).blocks == 3
    world.run_until_idle()
    assert not job.live
    assert not rival.live
    assert {entry.root.account for entry in world.pool.index} == {"globex"}
    world.close()


def test_a_prefix_published_in_flight_is_computed_in_the_next_step_and_not_behind_planned_ones() -> None:
    world = a_world()
    world.add("acme", b"abcd", LONG)
    decoding(world)
    asked: list[Future] = []
    message = Publish(next(world._versions), (Prefix("text", token_ids=tuple(b"abcdabcd")),))
    assert world.in_flight(lambda: asked.append(world.engine.publish(message)))
    assert not asked[0].done()
    world.step()
    assert asked[0].result(timeout=0).prefixes[0].blocks == 2
    world.close()


def test_a_plan_that_takes_too_long_by_now_is_void() -> None:
    world = a_world()
    for tenant in TENANTS:
        world.add(tenant, b"abcd", LONG)
    decoding(world)
    world.engine.pace = SteadyPace(StepLimits(1.0, 0.1, 0.8, 0.1))  # type: ignore[assignment]
    rows = world.backend.rows
    world.step()
    assert world.backend.rows == rows + 1
    assert world.fired["plan forgotten"] == 1
    world.close()


def test_what_was_copied_is_taken_over_while_planned_steps_run() -> None:
    world = a_world(Shape(blocks=64, block_size=4, budget=24, slots=8, host=8))
    world.add("acme", b"abcd", LONG)
    decoding(world)
    ended: list[bool] = []
    world.tiers.after(lambda: ended.append(True))
    kept = world.fired["plan kept"]
    assert world.in_flight(world.copier.release)
    assert ended, "nobody looked while the step was in flight"
    assert world.fired["plan kept"] == kept + 1
    world.close()


def test_a_stop_in_flight_tells_everybody_all_that_they_had() -> None:
    world = a_world()
    jobs = [world.add(tenant, b"abcd", LONG) for tenant in TENANTS]
    decoding(world)
    output = [job.request.sequences[0].output_length for job in jobs]
    assert world.in_flight(world.engine.stop)
    for job, tokens in zip(jobs, output, strict=True):
        assert job.finished is not None
        assert job.finished.error is not None
        assert job.finished.error.code == "engine_stopping"
        assert len(job.outputs[0]) == tokens + 1


def launch_fails(world: InFlightWorld) -> None:
    world.backend.fault = "launch"


def wait_fails(world: InFlightWorld) -> None:
    world.backend.fault = "step"


@pytest.mark.parametrize("fail", [launch_fails, wait_fails])
def test_a_step_that_fails_as_a_whole_is_computed_again(fail: Callable[[InFlightWorld], None]) -> None:
    world = a_world()
    everybody_asks(world)
    decoding(world)
    fail(world)
    world.step(2)
    assert world.backend.retried == 1
    world.close()
    assert {job.finished.reason for job in world.jobs if job.finished} <= {"stop", "length"}


@pytest.mark.parametrize("fault", ["answer", "chunk"])
def test_a_chunk_that_has_no_answer_ends_one_request_and_the_planned_step_goes_on(fault: str) -> None:
    world = a_world()
    everybody_asks(world)
    decoding(world)
    world.backend.fault = fault
    world.step(2)
    assert [job.finished.reason for job in world.jobs if job.finished] == ["error"]
    world.close()
