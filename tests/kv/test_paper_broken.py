"""The scenarios that broke the rules on paper, and what the rules promise since. Each with a rival tenant."""

from __future__ import annotations

import pytest

from pagoda_inference.kv.accounts import AccountsRefused
from pagoda_inference.protocol import Account
from pagoda_inference.scheduling.admission import MAX_PASSED
from pagoda_inference.scheduling.preemption import QUANTUM
from pagoda_inference.scheduling.sequence import RequestState
from tests.kv.simulation import prompt
from tests.kv.world import World, sequence_of

RIVALS = [Account("acme"), Account("globex")]


def reasons(world: World) -> set[str]:
    return {reason for _, reason in world.finished.values()}


# --- broken on paper once -------------------------------------------------------------------------------------------


def test_two_growing_prefills_never_wait_for_each_other() -> None:
    """Each needs more than half the pool: blocks taken chunk by chunk would deadlock."""
    world = World(10, 4, accounts=RIVALS, token_budget=8)
    first, second = world.submit("acme", prompt(28), 4), world.submit("globex", prompt(28, 1), 4)
    world.steps(2)
    assert [request.state for request in (first, second)] == [RequestState.RUNNING, RequestState.WAITING]
    world.run()
    assert reasons(world) == {"stop"}
    assert first.preemptions == second.preemptions == 0


def test_two_answers_that_grow_into_a_full_pool_both_end() -> None:
    world = World(8, 4, accounts=RIVALS, token_budget=16)
    oldest, youngest = world.submit("acme", prompt(12), 16), world.submit("globex", prompt(12, 1), 16)
    world.run()
    assert reasons(world) == {"stop"}
    assert oldest.preemptions == 0, "the oldest never gives way"
    assert youngest.preemptions >= 1


def test_a_reservation_is_reachable_behind_another_tenants_hits() -> None:
    """A hit makes cached blocks active: it may not take what covers somebody's reservation."""
    world = World(10, 4, accounts=[Account("acme"), Account("globex", reservation=6)], token_budget=64)
    for seed in range(3):
        world.submit("acme", prompt(12, seed), 1)
        world.run()
    assert world.ledger("acme").cached == 9, "lent by globex"
    holders = [world.submit("acme", prompt(12, seed), 40) for seed in range(3)]
    world.steps(2)
    assert world.ledger("acme").active <= 4, "the second hit would take from the reservation"
    owner = world.submit("globex", prompt(20, 3), 4)
    world.steps(1)
    assert owner.state is RequestState.RUNNING, "by eviction alone, at once"
    world.run()
    assert owner.preemptions == 0
    assert {world.finished[request.id][1] for request in holders} <= {"stop", "length"}


def test_equals_do_not_preempt_each_other_in_turns() -> None:
    world = World(12, 4, accounts=RIVALS, token_budget=64)
    requests = [world.submit(account, prompt(16, seed), 40) for seed, account in enumerate(["acme", "globex"] * 2)]
    world.run()
    assert reasons(world) <= {"stop", "length"}
    for request in requests:
        output = sequence_of(request).output_length
        assert request.preemptions <= output // QUANTUM + 1, "each stay produces a quantum"


def test_eight_answers_at_the_limit_are_refused_or_fit() -> None:
    """A prompt of 4 blocks and 8 answers need 12 blocks, not 5."""
    world = World(40, 4, accounts=[Account("acme", limit=12), Account("globex", limit=11)], token_budget=64)
    request = world.submit("acme", prompt(16), 4, samples=8)
    with pytest.raises(Exception, match="prompt tokens and 8 answers need 12 KV blocks and this tenant can have 11"):
        world.submit("globex", prompt(16), 4, samples=8)
    most = 0
    while world.scheduler.has_work:
        world.steps(1)
        most = max(most, world.ledger("acme").active)
    assert world.finished[request.id][1] == "stop"
    assert most == 12
    assert request.preemptions == 0


def test_eight_answers_that_outgrow_the_limit_end_with_length() -> None:
    world = World(40, 4, accounts=[Account("acme", limit=12), Account("globex")], token_budget=64)
    request = world.submit("acme", prompt(16), 40, samples=8)
    rival = world.submit("globex", prompt(16), 20)
    world.run()
    assert world.finished[request.id][1] == "length"
    assert world.finished[rival.id][1] == "stop"


def test_published_blocks_are_charged_to_the_public_account_and_nobody_else() -> None:
    world = World(12, 4, accounts=RIVALS, token_budget=64)
    assert world.publish(prompt(16)) == [None]
    world.steps(1)
    for account in ("acme", "globex"):
        world.submit(account, prompt(18), 2)
    world.steps(1)
    assert [world.ledger(name).active for name in ("public", "acme", "globex")] == [4, 1, 1]
    public = world.ledger("public")
    assert (public.reservation, public.limit, public.held) == (4, 4, 4)
    world.run()


# --- reservations and limits ----------------------------------------------------------------------------------------


def test_an_idle_reservation_is_lent_to_cached_blocks_only() -> None:
    world = World(10, 4, accounts=[Account("acme"), Account("globex", reservation=4)], token_budget=64)
    running = [world.submit("acme", prompt(12, seed), 60) for seed in range(3)]
    for _ in range(80):
        world.steps(1)
        assert world.ledger("acme").active <= 6, "active blocks would have to be preempted"
    world.run()
    assert all(request.state is RequestState.FINISHED for request in running)


def test_a_reservation_is_reclaimed_by_eviction_alone_while_the_borrower_runs() -> None:
    world = World(10, 4, accounts=[Account("acme"), Account("globex", reservation=4)], token_budget=64)
    for seed in range(4):
        world.submit("acme", prompt(16, seed), 1)
        world.run()
    borrower = world.submit("acme", prompt(8, 7), 14)
    world.steps(2)
    assert world.pool.free_blocks == 0
    owner = world.submit("globex", prompt(12, 2), 4)
    world.steps(1)
    assert owner.state is RequestState.RUNNING
    world.run()
    assert borrower.preemptions == owner.preemptions == 0
    assert world.ledger("acme").evictions["reclaimed"] >= 1


def test_raising_a_reservation_preempts_for_it() -> None:
    world = World(12, 4, accounts=RIVALS, token_budget=64)
    flood = [world.submit("acme", prompt(12, seed), 30) for seed in range(3)]
    world.steps(3)
    assert world.ledger("acme").active >= 10
    world.set_accounts([Account("acme"), Account("globex", reservation=8)], 2)
    world.check()
    assert world.ledger("acme").active <= 4
    assert flood[0].preemptions == 0, "the youngest give way"
    assert sum(request.preemptions for request in flood) == 2
    owner = world.submit("globex", prompt(24, 5), 4)
    world.steps(1)
    assert owner.state is RequestState.RUNNING
    world.run()


def test_a_request_alone_at_the_limit_ends_with_length_while_its_rival_goes_on() -> None:
    world = World(20, 4, accounts=[Account("acme", limit=4), Account("globex")], token_budget=64)
    request, rival = world.submit("acme", prompt(9), 100), world.submit("globex", prompt(9), 40)
    world.run()
    assert world.finished[request.id][1] == "length"
    assert world.finished[rival.id][1] == "stop"


def test_a_pool_that_shrank_scales_reservations_and_raises_an_alert() -> None:
    world = World(10, 4)
    quotas = [Account("acme", reservation=12), Account("globex", reservation=4)]
    with pytest.raises(AccountsRefused, match="lower them by 6"):
        world.scheduler.set_accounts(quotas, 1)
    world.scheduler.set_accounts(quotas, 1, pool_blocks=20)
    assert [world.ledger(name).reservation for name in ("acme", "globex")] == [7, 2]
    [alert] = world.scheduler.report().alerts
    assert "scaled to 62%" in alert
    world.scheduler.set_accounts(RIVALS, 2, pool_blocks=10)
    assert not world.scheduler.report().alerts


# --- queues ---------------------------------------------------------------------------------------------------------


def test_the_head_of_a_queue_is_passed_a_bounded_number_of_times() -> None:
    world = World(12, 4, accounts=[Account("acme", limit=8), Account("globex")], token_budget=64)
    world.submit("acme", prompt(8), 16)
    world.steps(1)
    head = world.submit("acme", prompt(24, 1), 4)
    small = [world.submit("acme", prompt(4, seed), 1) for seed in range(3 * MAX_PASSED)]
    while head.admitted_at is None:
        world.steps(1)
        assert head.passed <= MAX_PASSED
    world.run()
    before = [request for request in small if request.admitted_at and request.admitted_at < head.admitted_at]
    assert len(before) == MAX_PASSED, "after that its account saves blocks for it"
    assert world.finished[head.id][1] == "stop"


def test_batch_work_never_preempts_not_even_the_greatest() -> None:
    world = World(12, 4, accounts=RIVALS, token_budget=64)
    flood = [world.submit("acme", prompt(8, seed), 40) for seed in range(3)]
    world.steps(20)
    batch = world.submit("globex", prompt(20, 5), 4, request_class="batch")
    while any(request.state is not RequestState.FINISHED for request in flood):
        preempted = sum(request.preemptions for request in flood)
        world.steps(1)
        if sum(request.preemptions for request in flood) > preempted:
            assert batch.state is not RequestState.RUNNING, "for another of acme's, not for the batch"
    world.run()
    assert reasons(world) == {"stop"}


# --- forks ----------------------------------------------------------------------------------------------------------


def test_answers_of_one_prompt_share_its_blocks_and_copy_the_last_before_they_write() -> None:
    world = World(40, 4, accounts=RIVALS, token_budget=64)
    request = world.submit("acme", prompt(10), 6, samples=3)
    rival = world.submit("globex", prompt(10), 6)
    world.steps(1)
    assert world.ledger("acme").active == 3, "forks share partial blocks, too"
    step = world.step()
    assert len(step.copies) == 2, "the last to write keeps the block"
    tables = world.tables_of(request)
    assert len({tuple(table[:2]) for table in tables}) == 1
    assert len({table[2] for table in tables}) == 3
    assert world.ledger("acme").active == 5
    assert not {id for table in tables for id in table} & set(world.tables_of(rival)[0])
    world.run()
    assert reasons(world) == {"stop"}


def test_beams_fork_and_end_and_leave_nothing() -> None:
    world = World(40, 4, accounts=RIVALS, token_budget=64)
    request = world.submit("acme", prompt(10), 12, beam_width=4)
    world.submit("globex", prompt(10), 12)
    most = 0
    while world.scheduler.has_work:
        world.steps(1)
        assert len(world.tables_of(request)) in (0, 1, 4)
        most = max(most, world.ledger("acme").active)
    assert most < 4 * world.pool.blocks_for(22), "beams share what they have in common"
    assert world.ledger("acme").active == 0
    assert reasons(world) == {"stop"}


@pytest.mark.parametrize("host_blocks", [0, 60])
@pytest.mark.parametrize(("kind", "blocks"), [({"samples": 4}, 48), ({"beam_width": 4}, 32)])
def test_several_answers_survive_preemption(kind: dict[str, int], blocks: int, host_blocks: int) -> None:
    accounts = [Account("acme"), Account("globex", weight=3.0)]
    world = World(blocks, 4, accounts=accounts, token_budget=64, host_blocks=host_blocks)
    request = world.submit("acme", prompt(10), 30, **kind)
    old = world.submit("acme", prompt(4, 3), 60)
    world.steps(25)
    rivals = [world.submit("globex", prompt(20, seed), 30) for seed in range(3)]
    world.run()
    assert request.preemptions + old.preemptions >= 1
    assert world.finished[request.id][1] == "stop"
    assert all(world.finished[rival.id][1] == "stop" for rival in rivals)


# --- what is charged ------------------------------------------------------------------------------------------------


def test_tokens_computed_again_for_another_tenant_are_charged_to_nobody() -> None:
    world = World(34, 4, accounts=[Account("acme"), Account("globex", weight=3.0)], token_budget=64)
    victims = [world.submit("acme", prompt(12, seed), 30) for seed in range(3)]
    world.steps(25)
    world.submit("globex", prompt(40, 5), 4)
    world.run()
    again = sum(request.preemptions for request in victims)
    account = world.ledger("acme")
    assert again >= 1
    assert account.tokens_in == world.priced["acme"] == 3 * 12


def test_tokens_computed_again_for_ones_own_are_charged_as_service_but_are_no_new_input() -> None:
    world = World(30, 4, accounts=[Account("acme", limit=8), Account("globex")], token_budget=64)
    requests = [world.submit("acme", prompt(11, seed), 17) for seed in range(2)]
    world.submit("globex", prompt(12, 5), 30)
    world.run()
    assert sum(request.preemptions for request in requests) >= 1
    account = world.ledger("acme")
    assert account.tokens_in == 2 * 11
    assert world.priced["acme"] > 2 * 11
