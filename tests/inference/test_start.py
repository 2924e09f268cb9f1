"""What the engine's process does about garbage while it starts."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from pagoda_inference.daemon import without_collections


@pytest.fixture(autouse=True)
def nothing_stays_frozen() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def test_no_garbage_is_looked_for_until_everything_is_loaded() -> None:
    frozen = gc.get_freeze_count()
    with without_collections():
        assert not gc.isenabled()
        loaded = [[number] for number in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() - frozen >= len(loaded)


def test_it_is_looked_for_again_after_a_start_that_failed() -> None:
    with pytest.raises(ValueError, match="damaged"), without_collections():
        raise ValueError("damaged")
    assert gc.isenabled()


def test_garbage_of_the_start_is_not_kept() -> None:
    class Weights:
        alive = 0

        def __init__(self) -> None:
            self.itself = self
            Weights.alive += 1

        def __del__(self) -> None:
            Weights.alive -= 1

    with without_collections():
        Weights()
        assert Weights.alive == 1
    assert Weights.alive == 0


def test_where_it_was_not_looked_for_before_it_stays_so() -> None:
    gc.disable()
    with without_collections():
        pass
    assert not gc.isenabled()
