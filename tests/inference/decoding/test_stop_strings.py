"""Stop strings end the text wherever the pieces are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagoda_inference.decoding.stop_strings import StopStrings


def fed(stops: list[str], pieces: list[str]) -> tuple[str, str | None]:
    matcher = StopStrings(stops)
    text = "".join(matcher.feed(piece) for piece in pieces)
    return text + matcher.flush(), matcher.found


def test_a_stop_string_across_pieces_is_found_and_not_output() -> None:
    assert fed(["\n\nUser:"], ["Hello.", "\n", "\nUs", "er", ": and more"]) == ("Hello.", "\n\nUser:")


def test_text_that_may_be_the_beginning_is_held_back_until_it_is_not() -> None:
    matcher = StopStrings(["STOP"])
    assert matcher.feed("aST") == "a"
    assert matcher.feed("A") == "STA"
    assert matcher.feed("STO") == ""
    assert matcher.flush() == "STO"


def test_a_beginning_inside_a_beginning_is_not_lost() -> None:
    assert fed(["aab"], list("aaab!")) == ("a", "aab")


def test_the_first_to_be_complete_wins_and_the_longer_of_two() -> None:
    assert fed(["abcd", "bc"], ["xabcd"]) == ("xa", "bc")
    assert fed(["bc", "abc"], ["xabcd"]) == ("x", "abc")


def test_without_stop_strings_text_passes_unchanged() -> None:
    assert fed([], ["안녕", "🙂"]) == ("안녕🙂", None)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopStrings(["x", ""])


@given(st.lists(st.text("abc", min_size=1, max_size=4), max_size=3), st.text("abc", max_size=30), st.data())
def test_the_outcome_does_not_depend_on_the_cuts(stops: list[str], text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    output, found = fed(stops, pieces)
    ends = [(end, -len(stop)) for stop in stops for end in range(len(text) + 1) if text[:end].endswith(stop)]
    if ends:
        end, length = min(ends)
        assert (output, found) == (text[: end + length], text[end + length : end])
    else:
        assert (output, found) == (text, None)
