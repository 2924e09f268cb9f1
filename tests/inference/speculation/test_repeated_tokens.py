"""What followed the latest of the longest earlier occurrences of a sequence's last tokens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pagoda_inference.speculation.repeated_tokens import CANDIDATES, LONGEST, SHORTEST, RepeatedTokens


def continuation(tokens: list[int], most: int = 4) -> list[int]:
    return RepeatedTokens().continuation(tokens, most)


def naive(tokens: list[int], most: int) -> list[int]:
    for length in range(LONGEST, SHORTEST - 1, -1):
        for end in range(len(tokens) - 2, length - 2, -1):
            if len(tokens) > length and tokens[end - length + 1 : end + 1] == tokens[-length:]:
                found = tokens[end + 1 : end + 1 + most]
                while len(found) < most:
                    found.append((tokens + found)[end + 1 + len(found)])
                return found
    return []


def test_what_followed_the_last_tokens_before_is_proposed():
    assert continuation([1, 2, 3, 4, 5, 6, 9, 2, 3]) == [4, 5, 6, 9]


def test_the_latest_of_equal_occurrences_counts():
    assert continuation([7, 1, 2, 3, 8, 1, 2, 4, 9, 1, 2], 1) == [4]


def test_a_longer_occurrence_counts_more_than_a_later_one():
    assert continuation([5, 6, 1, 2, 3, 0, 9, 1, 2, 4, 0, 5, 6, 1, 2], 1) == [3]


def test_a_text_that_repeats_itself_does_so_for_ever():
    assert continuation([4, 1, 2, 1, 2, 1, 2], 6) == [1, 2, 1, 2, 1, 2]
    assert continuation([8, 8, 8], 3) == [8, 8, 8]


def test_new_tokens_have_no_continuation():
    for tokens in ([], [1], [1, 1], [1, 2, 3, 4], [1, 2, 3, 1]):
        assert continuation(tokens) == []


@given(st.lists(st.integers(0, 2), max_size=CANDIDATES), st.integers(1, 6))
def test_it_is_what_a_search_finds(tokens: list[int], most: int):
    assert continuation(tokens, most) == naive(tokens, most)


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=1, max_size=12))
def test_an_index_that_grows_says_what_a_new_one_does(parts: list[list[int]]):
    grown, tokens = RepeatedTokens(), []
    for part in parts:
        tokens += part
        assert grown.continuation(tokens, 3) == continuation(tokens, 3)
