"""Published prefixes and deleted conversations: what tenants share, what they never do, and what an operator can take
back at any time."""

from __future__ import annotations

from pagoda_inference.kv.pool import Pool
from pagoda_inference.kv.prefix_index import PUBLIC
from pagoda_inference.protocol import Account
from pagoda_inference.scheduling.sequence import RequestState
from tests.kv.operated_pool import OperatedPool
from tests.kv.world import World

RIVALS = [Account("acme"), Account("globex")]
PREFIX = [(index * index + index // 5) % 4 for index in range(18)]


def test_rivals_share_the_published_prefix_and_nothing_that_follows() -> None:
    world = World(40, 4, accounts=RIVALS, token_budget=64)
    assert world.publish(PREFIX) == [None]
    world.run()
    question = PREFIX + [1, 2, 3] * 5
    first = world.submit("acme", question, 4)
    world.steps(1)
    second = world.submit("globex", question, 4)
    world.steps(1)
    [acme], [globex] = world.tables_of(first), world.tables_of(second)
    assert acme[:4] == globex[:4], "the same four blocks"
    assert not set(acme[4:]) & set(globex[4:])
    world.run()
    assert (first.cached_tokens, second.cached_tokens) == (16, 16), "nothing private was found"
    again = world.submit("acme", question, 4)
    world.run()
    assert again.cached_tokens == (33 - 1) // 4 * 4


def test_a_prefix_that_reservations_leave_no_room_for_is_refused_with_the_numbers() -> None:
    world = World(10, 4, accounts=[Account("acme", reservation=4), Account("globex", reservation=4)], token_budget=64)
    [refused], _ = world.scheduler.publish([("handbook", PREFIX)], 0.0)
    assert refused.error is not None
    assert refused.error.code == "kv_limit_exceeded"
    assert refused.error.details == {"needed_blocks": 4, "limit_blocks": 2, "block_size": 4}
    assert world.ledger(PUBLIC).reservation == 0
    assert world.publish(PREFIX[:8]) == [None]
    world.run()
    world.check()


def test_a_prefix_taken_back_while_it_is_read_leaves_its_readers_alone() -> None:
    world = World(20, 4, accounts=RIVALS, token_budget=64)
    world.publish(PREFIX)
    world.run()
    reader, rival = world.submit("acme", [*PREFIX, 3], 12), world.submit("globex", [*PREFIX, 2], 12)
    world.steps(3)
    world.publish()
    world.check()
    assert world.ledger(PUBLIC).held == 4, "until its readers end"
    newcomer = world.submit("acme", [*PREFIX, 3], 2)
    world.run()
    assert newcomer.cached_tokens == 0
    assert {world.finished[request.id][1] for request in (reader, rival, newcomer)} == {"stop"}
    public = world.ledger(PUBLIC)
    assert (public.held, public.reservation, public.limit) == (0, 0, 0)


def test_prefixes_that_are_equal_in_whole_blocks_are_kept_once_and_none_is_lost() -> None:
    world = World(20, 4, accounts=RIVALS, token_budget=64)
    for _ in range(2):
        assert world.publish(PREFIX[:17], PREFIX) == [None, None]
        world.run()
        world.check()
    assert world.ledger(PUBLIC).held == 4
    world.publish()
    world.check()
    assert world.ledger(PUBLIC).held == 0


def test_publishing_makes_room_even_where_readers_of_an_old_prefix_give_way() -> None:
    """They give public blocks back while the public account grows: the new prefix must not lose its room by that."""
    world = World(8, 4, accounts=RIVALS, token_budget=64)
    world.publish(PREFIX)
    world.run()
    readers = [world.submit(account, [*PREFIX, seed], 6) for seed, account in enumerate(("acme", "globex"))]
    world.steps(2)
    assert world.publish([3] * 16) == [None]
    world.check()
    assert world.ledger(PUBLIC).held == 4
    world.run()
    assert all(request.state is RequestState.FINISHED for request in readers)


def test_published_blocks_do_not_count_against_a_tenants_limit() -> None:
    world = World(20, 4, accounts=[Account("acme", limit=2), Account("globex")], token_budget=64)
    world.publish(PREFIX)
    world.run()
    request, rival = world.submit("acme", PREFIX, 4), world.submit("globex", PREFIX, 4)
    world.steps(1)
    assert world.ledger("acme").active == 1
    world.run()
    assert {world.finished[request.id][1] for request in (request, rival)} == {"stop"}
    waiting = world.submit("acme", PREFIX, 4)
    world.publish()
    assert world.finished[waiting.id][1] == "kv_limit_exceeded"


def test_publishing_waits_for_blocks_that_are_being_copied() -> None:
    world = World(8, 4, accounts=RIVALS, token_budget=64, host_blocks=40)
    for seed, account in enumerate(("acme", "globex")):
        world.submit(account, [(seed + index * seed) % 4 for index in range(16)], 1)
        world.steps(1)
    world.scheduler.poll()
    assert world.scheduler.transfers is not None
    assert world.scheduler.transfers.in_flight, "what is cached is on its way down"
    assert world.publish([3] * 28) == [None]
    world.check()
    world.run()
    assert world.ledger(PUBLIC).held == 7


def test_a_deleted_conversation_keeps_what_another_one_shares() -> None:
    world = World(40, 4, accounts=RIVALS, token_budget=64)
    for account, lineage, ending in (
        ("acme", "deleted", [1] * 9),
        ("acme", "kept", [2] * 9),
        ("globex", "deleted", [1] * 9),
    ):
        world.submit(account, PREFIX[:16] + ending, 1, lineage=lineage)
        world.run()
    assert world.scheduler.purge("acme", "deleted")[0] == 2
    world.check()
    kept = world.submit("acme", PREFIX[:16] + [2] * 9, 1)
    gone = world.submit("acme", PREFIX[:16] + [1] * 9, 1)
    rival = world.submit("globex", PREFIX[:16] + [1] * 9, 1)
    world.run()
    assert (kept.cached_tokens, gone.cached_tokens, rival.cached_tokens) == (24, 16, 24)


# --- found by the machines ------------------------------------------------------------------------------------------


def test_what_followed_another_prefix_of_the_same_hash_is_not_found() -> None:
    model = OperatedPool(20, 1, lambda parent, packed: (b"same" if packed[0] < 2 else b"other") + parent[:1])
    model.publish([0])
    model.open("acme", "tenant:acme", "", [0, 2, 3])
    model.append(model.held[0], 2)
    model.commit(model.held[0], 3)
    model.unpublish(model.published[0])
    model.publish([1])
    model.open("acme", "tenant:acme", "", [1, 2, 3])
    assert model.held[1].written == 1, "only the published block"
    model.check()


def test_equal_blocks_of_a_fork_do_not_wake_a_cached_one_beyond_the_limit() -> None:
    pool = Pool(4, 2)
    pool.accounts.replace([Account("acme", limit=2), Account("globex")], 1)
    account = pool.accounts.find("acme")
    assert account is not None
    tables = [pool.open_table(account, pool.chain("acme", "tenant:acme")) for _ in range(2)]
    for table in tables:
        pool.append(table, 0, 2)
    tables.append(pool.fork(tables[0]))
    pool.commit(tables[1], [5, 6, 7], 2)
    pool.free(tables[1])
    pool.commit(tables[0], [5, 6, 7], 2)
    assert (account.active, account.cached, account.shared) == (1, 0, 1)


def test_a_fork_inside_a_findable_block_copies_it_even_when_it_is_left_alone_with_it() -> None:
    model = OperatedPool(8, 4)
    model.open("acme", "tenant:acme", "", [1, 2, 3, 4, 5])
    [parent] = model.held
    model.append(parent, 5)
    model.commit(parent, 5)
    model.fork(parent, 2)
    model.free(parent)
    [child] = model.held
    model.append(child, 3)
    model.check()
    assert len(model.pool.match(model.pool.chain("acme", "tenant:acme"), [1, 2, 3, 4, 5])) == 1
