"""Whether tenants share the engine, or one has it to itself."""

from __future__ import annotations

from pagoda_inference.scheduling.recent import RECENT_S, RecentAccounts


def test_one_account_has_it_to_itself_however_often_it_asks() -> None:
    recent = RecentAccounts()
    for moment in range(20):
        recent.saw("acme", float(moment))
        assert not recent.shared({"acme"}, float(moment))
        assert not recent.shared(set(), float(moment))


def test_another_that_asked_of_late_may_ask_again() -> None:
    recent = RecentAccounts()
    recent.saw("rival", 0.0)
    recent.saw("acme", 1.0)
    assert recent.shared({"acme"}, RECENT_S)
    assert not recent.shared({"acme"}, RECENT_S + 0.5), "the rival's request is too long ago"
    assert recent.shared({"acme", "rival"}, 10 * RECENT_S), "what runs counts however old it is"
    assert not recent.shared({"acme"}, 10 * RECENT_S)


def test_the_latest_request_of_an_account_counts() -> None:
    recent = RecentAccounts()
    recent.saw("rival", 0.0)
    recent.saw("acme", 5.0)
    recent.saw("rival", 9.0)
    assert recent.shared({"acme"}, 9.0 + RECENT_S)
    recent.saw("acme", 30.0)
    assert not recent.shared({"acme"}, 30.0)
