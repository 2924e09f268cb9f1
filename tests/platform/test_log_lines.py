"""What the console shows: a refused request is one line, a failure keeps its traceback."""

import json
import logging

import pytest

from pagoda.log_format import JsonFormatter, RefusedWithoutTraceback


@pytest.fixture
def console(caplog):
    """The lines that the console's filter and formatter make of the requests' records."""
    refused, formatter = RefusedWithoutTraceback(), JsonFormatter()
    caplog.handler.addFilter(refused)
    yield lambda: [json.loads(formatter.format(record)) for record in caplog.records]
    caplog.handler.removeFilter(refused)


@pytest.mark.django_db
def test_a_wrong_host_and_a_page_that_is_not_allowed_are_one_line_each(console, client, acme, settings):
    client.force_login(acme.member)
    assert client.get("/members/").status_code == 403
    response = client.get("/healthz", headers={"host": "elsewhere.example"})
    assert response.status_code == 400
    assert "elsewhere.example" not in response["Content-Security-Policy"]
    lines = console()
    assert len(lines) == 2
    assert not any("exception" in line for line in lines)


def test_a_failure_keeps_its_traceback(console):
    try:
        raise RuntimeError("broken")
    except RuntimeError:
        logging.getLogger("django.request").exception("Internal Server Error", extra={"status_code": 500})
    [line] = console()
    assert "RuntimeError: broken" in line["exception"]
