"""Non-interference: what a tenant's rival says cannot be observed, only how much it says and when.

Two worlds differ by a renaming of the rival's tokens alone, which keeps the rival's own repeats, lengths and times. In
the first the rival replays the tenant's very prompts. Under a virtual clock everything that the tenant can observe must
be identical: its tokens, cached-token counts, order, times, preemptions and waits.
"""

from __future__ import annotations

import os
import random

import pytest

from pagoda_inference.kv.accounts import AccountsRefused
from pagoda_inference.kv.prefix_index import PUBLIC, PrefixIndex, ScopeRoot
from pagoda_inference.protocol import Account
from pagoda_inference.scheduling.scheduler import RequestRefused
from pagoda_inference.scheduling.sequence import Request
from tests.kv.simulation import VOCABULARY, next_token
from tests.kv.world import World

SEEDS = range(max(40, int(os.environ.get("PAGODA_TEST_EXAMPLES", "200")) // 4))
SIZE = 4
PREFIXES = [[(n * i + i // 3) % VOCABULARY for i in range(12)] for n in (1, 2)]
"""What an operator publishes: every prompt is longer."""


class MirrorWorld(World):
    """``renamed``: the rival's tokens are others, but for published prefixes that its prompts begin with."""

    renamed = False

    def say(self, account: str, prompt: list[int], max_tokens: int, request_class: str, samples: int) -> Request | None:
        """Submit a prompt, as this world calls its tokens; note a refusal."""
        try:
            return self.submit(
                account, self.named(account, prompt), max_tokens, request_class=request_class, samples=samples
            )
        except RequestRefused as refusal:
            self.trace.setdefault(account, []).append((self.clock, "refused", refusal.error))
            return None

    def named(self, account: str, tokens: list[int]) -> list[int]:
        if account != "rival" or not self.renamed:
            return list(tokens)
        public = published(tokens)
        return tokens[:public] + [token + VOCABULARY for token in tokens[public:]]

    def original(self, account: str, tokens: list[int]) -> list[int]:
        return [token % VOCABULARY for token in tokens] if account == "rival" else list(tokens)

    def _answer(self, request: Request, known: list[tuple[int, int]]) -> int:
        if request.account != "rival" or not self.renamed:
            return next_token(known)
        return next_token([(token % VOCABULARY, position) for token, position in known]) + VOCABULARY

    def _several(self, request: Request, token: int) -> tuple[int, ...]:
        first = token - token % VOCABULARY
        return tuple(first + (token + index) % VOCABULARY for index in range(len(request.samplers)))


def published(tokens: list[int]) -> int:
    """How many tokens at the start are of any prefix that is ever published, in whole blocks."""
    most = 0
    for prefix in PREFIXES:
        length = 0
        while length < len(prefix) and tokens[: length + SIZE] == prefix[: length + SIZE]:
            length += SIZE
        most = max(most, length)
    return most


def live(seed: int, *, renamed: bool, merged: bool = False) -> MirrorWorld:
    """One world's history: chosen by the seed alone, whatever the world.

    merged: for the control, whose accounts do not add up; there is room for everything then.
    """
    random_ = random.Random(seed)
    accounts = [Account("tenant"), Account("rival", weight=random_.choice([0.5, 1.0, 3.0]))]
    world = MirrorWorld(
        400 if merged else random_.choice([16, 24, 40]),
        SIZE,
        accounts=accounts,
        token_budget=random_.randint(6, 24),
        max_running=random_.randint(2, 6),
        host_blocks=0 if merged else random_.choice([0, 0, 6, 40]),
    )
    world.renamed = renamed
    beginnings = [[random_.randrange(VOCABULARY) for _ in range(12)] for _ in range(2)]
    prompts = [
        random_.choice([*beginnings, *PREFIXES])
        + [random_.randrange(VOCABULARY) for _ in range(random_.randint(1, 20))]
        for _ in range(6)
    ]
    said: dict[str, list[Request]] = {"tenant": [], "rival": []}
    for number in range(160):
        act = random_.random()
        if act < 0.03:
            world.publish(*random_.choice([PREFIXES, PREFIXES[:1], []]))
        elif act < 0.06 and not merged:
            edit(world, random_, number)
        elif act < 0.45 and number < 120:
            account = random_.choice(["tenant", "rival"])
            speak(world, random_, account, prompts, said[account])
        world.step()
        world.copier.release(random_.choice([0, 1, 1, 3]))
        note(world)
        if not merged:
            world.check()
    return world


def speak(
    world: MirrorWorld, random_: random.Random, account: str, prompts: list[list[int]], said: list[Request]
) -> None:
    """A prompt that both know, or the next turn of a conversation."""
    prompt, place, more = random_.choice(prompts), random_.randrange(1 << 20), random_.choices(range(VOCABULARY), k=3)
    if random_.random() < 0.4 and said:
        earlier = said[place % len(said)]
        prompt = world.original(account, earlier.sequences[0].tokens[:40] if earlier.sequences else []) + more
        prompt = prompt if len(prompt) > 12 else prompts[0]
    request = world.say(
        account,
        prompt,
        random_.randint(1, 24),
        random_.choice(["interactive", "api", "batch"]),
        random_.choice([1, 1, 1, 3]),
    )
    if request is not None:
        said.append(request)


def edit(world: MirrorWorld, random_: random.Random, number: int) -> None:
    """Other quotas for both."""
    total = world.pool.total
    accounts = []
    for name in ("tenant", "rival"):
        reservation = random_.randint(0, total // 3)
        accounts.append(Account(name, reservation, random_.choice([None, max(reservation, total // 2)])))
    try:
        world.set_accounts(accounts, number + 2)
    except AccountsRefused as refusal:
        world.trace.setdefault("tenant", []).append((number, "quotas refused", str(refusal)))


def note(world: MirrorWorld) -> None:
    """What a tenant's own report says after each step (by whom it lost blocks is for operators)."""
    for account in world.scheduler.report().accounts:
        if account.id == "tenant":
            world.trace.setdefault("tenant", []).append((world.clock, str(account)))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_tenant_cannot_tell_what_its_rival_says(seed: int) -> None:
    one, other = live(seed, renamed=False), live(seed, renamed=True)
    assert one.trace["tenant"] == other.trace["tenant"]
    assert len(one.trace["rival"]) == len(other.trace["rival"]), "the rival lived, too"


def test_merged_scopes_would_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: with one scope for everybody the rival's words change the tenant's times."""
    root = PrefixIndex.root

    def one_root(
        index: PrefixIndex, account: str, scope: str, after: bytes = b"", before: list[bytes] | None = None
    ) -> ScopeRoot:
        name = account if account == PUBLIC else "everybody"
        return root(index, name, name, after, before)

    monkeypatch.setattr(PrefixIndex, "root", one_root)
    told = 0
    for seed in range(20):
        one, other = live(seed, renamed=False, merged=True), live(seed, renamed=True, merged=True)
        told += one.trace["tenant"] != other.trace["tenant"]
    assert told > 10


def test_much_happens_in_these_worlds() -> None:
    """Hits, preemptions of each kind, evictions by the rival and published prefixes all occur."""
    worlds = [live(seed, renamed=False) for seed in range(40)]
    tenants = [account for world in worlds for account in world.scheduler.report().accounts if account.id == "tenant"]
    assert sum(account.hit_tokens for account in tenants) > 100
    assert all(sum(account.preemptions.get(kind, 0) for account in tenants) for kind in ("swap", "recompute"))
    assert sum(account.evicted_by.get("rival", 0) for account in tenants) > 20
    assert sum(account.promoted.get("host", 0) for account in tenants) > 0
