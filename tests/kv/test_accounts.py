"""Quotas: what a reservation guarantees, what a limit caps, whose cache is evicted, who gives way."""

from __future__ import annotations

import pytest

from pagoda_inference.kv.accounts import AccountsRefused
from pagoda_inference.kv.prefix_index import PrefixIndex
from pagoda_inference.protocol import Account
from pagoda_inference.scheduling.scheduler import RequestRefused
from pagoda_inference.scheduling.sequence import RequestState
from tests.kv.simulation import Simulation, prompt


def test_an_idle_reservation_is_lent_to_cached_blocks_and_reclaimed_at_once() -> None:
    simulation = Simulation(10, 4, accounts=[Account("acme"), Account("globex", reservation=4)], token_budget=64)
    for seed in range(3):
        simulation.submit("acme", prompt(20, seed), 1)
        simulation.run()
    assert simulation.pool.free_blocks == 0, "acme's cache borrowed the reservation"
    simulation.submit("globex", prompt(12, 3), 1)
    simulation.run()
    assert simulation.ledger("acme").evictions["reclaimed"] >= 1
    assert simulation.ledger("acme").evicted_by["globex"] >= 1


def test_a_warm_conversation_inside_its_reservation_survives_a_rivals_flood() -> None:
    simulation = Simulation(16, 4, accounts=[Account("acme"), Account("globex", reservation=4)], token_budget=64)
    simulation.submit("globex", prompt(14), 2)
    simulation.run()
    warm = simulation.ledger("globex").cached
    for seed in range(12):
        simulation.submit("acme", prompt(30, seed), 6)
    simulation.run()
    again = simulation.submit("globex", prompt(14), 2)
    simulation.run()
    assert warm == 3
    assert again.cached_tokens == 12


def test_a_tenant_never_holds_more_than_its_limit() -> None:
    simulation = Simulation(20, 4, accounts=[Account("acme", limit=6), Account("globex")], token_budget=64)
    for seed in range(6):
        simulation.submit("acme", prompt(12, seed), 6)
    for _ in range(200):
        simulation.step()
        assert simulation.ledger("acme").held <= 6
    assert not simulation.scheduler.has_work


def test_a_request_over_the_limit_is_refused_with_the_numbers() -> None:
    simulation = Simulation(20, 4, accounts=[Account("acme", limit=4), Account("globex", reservation=10)])
    with pytest.raises(RequestRefused) as refusal:
        simulation.submit("acme", prompt(16), 1)
    assert refusal.value.error.code == "kv_limit_exceeded"
    assert refusal.value.error.details == {"needed_blocks": 5, "limit_blocks": 4, "block_size": 4}
    simulation.submit("globex", prompt(40), 1)


def test_others_reservations_bound_what_can_be_active() -> None:
    simulation = Simulation(20, 4, accounts=[Account("acme"), Account("globex", reservation=15)])
    with pytest.raises(RequestRefused) as refusal:
        simulation.submit("acme", prompt(20), 1)
    assert refusal.value.error.details["limit_blocks"] == 5


def test_a_request_left_alone_at_its_limit_ends_with_length() -> None:
    simulation = Simulation(20, 4, accounts=[Account("acme", limit=4), Account("globex")])
    request = simulation.submit("acme", prompt(9), 100)
    simulation.run()
    assert simulation.finished[request.id][1] == "length"
    assert len(request.sequences[0].tokens) == 16 + 1  # the pool holds 16, the last token is not computed any more


def test_lowering_a_limit_evicts_then_preempts_and_everything_still_finishes() -> None:
    simulation = Simulation(20, 4, accounts=[Account("acme"), Account("globex")], token_budget=64)
    requests = [simulation.submit("acme", prompt(12, seed), 12) for seed in range(3)]
    for _ in range(4):
        simulation.step()
    simulation.set_accounts([Account("acme", limit=7), Account("globex")], 2)
    assert simulation.ledger("acme").held <= 7
    simulation.run()
    assert [simulation.finished[request.id][1] for request in requests] == ["stop"] * 3
    assert sum(request.preemptions for request in requests) >= 2


def test_an_answer_that_a_lowered_limit_ends_is_told_what_it_held() -> None:
    simulation = Simulation(20, 4, accounts=[Account("acme"), Account("globex")], token_budget=64)
    ended, other = simulation.submit("acme", prompt(8), 30), simulation.submit("globex", prompt(8), 30)
    for _ in range(10):
        simulation.step()
    errors = dict(simulation.scheduler.set_accounts([Account("acme", limit=3), Account("globex")], 2))
    assert "tokens of prompt and answer" in errors[ended].message
    assert other not in errors
    simulation.run()


def test_reservations_above_the_pool_are_refused_and_change_nothing() -> None:
    simulation = Simulation(10, 4, accounts=[Account("acme", reservation=3), Account("globex", reservation=3)])
    with pytest.raises(AccountsRefused, match="add up to 12 blocks and the pool has 10"):
        simulation.set_accounts([Account("acme", reservation=6), Account("globex", reservation=6)], 2)
    assert simulation.ledger("acme").reservation == 3
    assert simulation.pool.accounts.version == 1


def test_a_deleted_tenant_is_aborted_and_purged_and_its_rival_goes_on() -> None:
    simulation = Simulation(20, 4, accounts=[Account("acme"), Account("globex")], token_budget=64)
    gone, stays = simulation.submit("acme", prompt(12), 50), simulation.submit("globex", prompt(12), 8)
    for _ in range(3):
        simulation.step()
    simulation.set_accounts([Account("globex")], 2)
    assert simulation.finished[gone.id][1] == "unknown_account"
    assert simulation.pool.accounts.find("acme") is None
    simulation.run()
    assert simulation.finished[stays.id][1] == "stop"
    with pytest.raises(RequestRefused, match="does not know this tenant"):
        simulation.submit("acme", prompt(4), 1)


def test_the_same_prompt_is_cached_for_its_tenant_and_unknown_to_its_rival() -> None:
    simulation = Simulation(40, 16, accounts=[Account("acme"), Account("globex")], token_budget=512)
    first = simulation.submit("acme", prompt(100), 4)
    simulation.run()
    again, rival = simulation.submit("acme", prompt(100), 4), simulation.submit("globex", prompt(100), 4)
    simulation.run()
    assert (first.cached_tokens, again.cached_tokens, rival.cached_tokens) == (0, (100 - 1) // 16 * 16, 0)


def test_user_scopes_of_one_tenant_do_not_share() -> None:
    simulation = Simulation(40, 16, accounts=[Account("acme"), Account("globex")], token_budget=512)
    simulation.submit("acme", prompt(100), 4, scope="user:ada")
    simulation.run()
    other = simulation.submit("acme", prompt(100), 4, scope="user:bob")
    same = simulation.submit("acme", prompt(100), 4, scope="user:ada")
    simulation.run()
    assert (other.cached_tokens, same.cached_tokens) == (0, 96)


def test_equal_prompts_at_the_same_time_are_stored_once() -> None:
    simulation = Simulation(40, 4, accounts=[Account("acme"), Account("globex")], token_budget=64)
    requests = [simulation.submit("acme", prompt(17), 3) for _ in range(3)]
    simulation.run()
    assert simulation.ledger("acme").cached == 4, "four full blocks of 17 tokens"
    assert len({tuple(request.sequences[0].tokens) for request in requests}) == 1


def test_a_newcomer_gets_its_share_of_a_full_pool_by_preemption() -> None:
    simulation = Simulation(24, 4, accounts=[Account("acme"), Account("globex")], token_budget=64)
    flood = [simulation.submit("acme", prompt(8, seed), 60) for seed in range(4)]
    for _ in range(30):
        simulation.step()
    newcomer = simulation.submit("globex", prompt(8, 9), 4)
    for _ in range(20):
        simulation.step()
    assert simulation.finished[newcomer.id][1] == "stop"
    assert newcomer.preemptions == 0
    simulation.run()
    assert all(simulation.finished[request.id][1] == "stop" for request in flood)


def test_a_tenant_with_few_slots_gets_of_those_that_are_there_besides() -> None:
    simulation = Simulation(400, 4, token_budget=64, max_running=32)
    for seed in range(40):
        simulation.submit("acme", prompt(5, seed), 60)
    simulation.steps(6)
    assert len(simulation.scheduler.running) == 32
    questions = [simulation.submit("globex", prompt(5, seed), 60) for seed in range(3)]
    simulation.steps(4)
    assert [question.state for question in questions] == [RequestState.RUNNING] * 2 + [RequestState.WAITING]
    newcomer = simulation.submit("initech", prompt(5, 3), 60)
    simulation.steps(2)
    assert newcomer.state is RequestState.RUNNING, "the rest is for who has none"
    assert len(simulation.scheduler.running) == 35


def test_a_tenant_without_a_slot_takes_one_from_the_tenant_with_most() -> None:
    simulation = Simulation(100, 4, accounts=[Account("acme"), Account("globex")], token_budget=64, max_running=4)
    for seed in range(8):
        simulation.submit("acme", prompt(8, seed), 200)
    for _ in range(30):
        simulation.step()
    newcomer = simulation.submit("globex", prompt(8, 9), 4)
    for _ in range(20):
        simulation.step()
    assert simulation.finished[newcomer.id][1] == "stop"


def test_batch_work_is_the_first_victim_and_never_preempts() -> None:
    simulation = Simulation(12, 4, accounts=[Account("acme"), Account("globex")], token_budget=64)
    batch = simulation.submit("acme", prompt(8), 30, request_class="batch")
    for _ in range(20):
        simulation.step()
    chat = simulation.submit("acme", prompt(16, 5), 20)
    simulation.run()
    assert batch.preemptions >= 1
    assert chat.preemptions == 0
    assert {simulation.finished[request.id][1] for request in (batch, chat)} == {"stop"}


def test_a_hit_in_a_preempted_request_is_not_counted_again() -> None:
    simulation = Simulation(12, 4, accounts=[Account("acme"), Account("globex")], token_budget=64)
    requests = [simulation.submit("acme", prompt(8, seed), 24) for seed in range(2)]
    simulation.run()
    assert sum(request.preemptions for request in requests) >= 1
    account = simulation.ledger("acme")
    assert account.hit_tokens == sum(request.cached_tokens for request in requests)
    assert account.queried_tokens == 16
    assert account.tokens_in == 16, "tokens computed again are charged to nobody"


def test_the_echo_memory_notices_a_wrong_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of all tests here: an index that believes a hash without comparing tokens is found out."""
    monkeypatch.setattr(PrefixIndex, "find", lambda index, parent, key, packed: index._entries.get(key))
    simulation = Simulation(40, 4, digest=lambda parent, packed: b"same", token_budget=64)
    simulation.submit("acme", prompt(9), 4)
    simulation.submit("globex", prompt(9, 1), 4)
    with pytest.raises(AssertionError):
        simulation.run()
