"""`manage.py key_create`: what the options make of a key, and what is refused."""

import io
import json
from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from pagoda.tenants.keys import authenticate_key
from pagoda.tenants.models import ApiKey

pytestmark = pytest.mark.django_db


def key_create(*options):
    told = io.StringIO()
    call_command("key_create", "--tenant", "acme", *options, stdout=told)
    return told.getvalue().strip()


def test_the_text_alone_is_printed(acme, rival):
    key = authenticate_key(key_create())
    assert (key.tenant, key.scopes, key.expires, key.is_limited) == (acme.tenant, ["chat", "batch"], None, False)


def test_scopes_limits_and_a_duration(acme, rival):
    made = json.loads(
        key_create(
            *("--scopes", "admin, chat", "--expires", "12h", "--json", "--requests-per-minute", "1"),
            *("--tokens-per-minute", "2", "--concurrent-generations", "3", "--monthly-tokens", "4"),
        )
    )
    key = authenticate_key(made["key"])
    assert key.scopes == made["scopes"] == ["chat", "admin"]
    assert list(key.limits().values()) == [1, 2, 3, 4]
    assert timedelta(hours=11.9) < key.expires - timezone.now() <= timedelta(hours=12)
    assert datetime.fromisoformat(made["expires"]) == key.expires


def test_a_time_is_utc_unless_it_says_otherwise(acme, rival):
    assert authenticate_key(key_create("--expires", "2099-01-02T03:04")).expires == datetime(
        2099, 1, 2, 3, 4, tzinfo=UTC
    )
    assert authenticate_key(key_create("--expires", "2099-01-02T03:04+09:00")).expires.hour == 18


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--scopes", "chat,root"], "There is no scope root: a key has some of chat, batch, admin"),
        (["--label", "x" * 101], "label: Ensure this value has at most 100 characters"),
        (["--label", " "], "label: This field cannot be blank"),
        (["--scopes", ","], "chat, batch, admin"),
        (["--expires", "soon"], "12h"),
        (["--expires", "0d"], "12h"),
        (["--expires", "2001-01-01"], "passed"),
        (["--requests-per-minute", "0"], "requests per minute"),
        (["--monthly-tokens", "-5"], "tokens per month"),
        (["--monthly-tokens", str(10**30)], "tokens per month"),
    ],
)
def test_what_is_wrong_is_said_and_makes_no_key(acme, rival, options, said):
    with pytest.raises(CommandError, match=said):
        key_create(*options)
    assert not ApiKey.across_tenants.exists()
