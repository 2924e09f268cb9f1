"""Static files come from where they lie, without a collecting step."""

import pytest
from django.contrib.staticfiles import finders
from django.http import HttpResponse
from django.test import AsyncClient, RequestFactory

from pagoda.static_files import StaticFilesMiddleware

PAGE_STYLES = "/static/pagoda/pages.css"


@pytest.fixture
def content():
    with open(finders.find("pagoda/pages.css"), "rb") as file:
        return file.read()


def test_files_are_served_whole_and_in_parts(client, content):
    response = client.get(PAGE_STYLES)
    assert (response.content, response["Content-Type"]) == (content, 'text/css; charset="utf-8"')
    assert client.get(PAGE_STYLES, headers={"range": "bytes=2-5"}).content == content[2:6]
    assert client.get(PAGE_STYLES, headers={"if-none-match": response["ETag"]}).status_code == 304
    assert client.head(PAGE_STYLES)["Content-Length"] == str(len(content))
    assert "Access-Control-Allow-Origin" not in response


async def test_files_are_served_on_the_event_loop(content):
    response = await AsyncClient().get(PAGE_STYLES)
    assert (response.streaming, response.content) == (False, content)


def test_a_file_that_was_written_again_has_its_new_length(settings, tmp_path):
    (tmp_path / "app.js").write_text("short")
    settings.STATICFILES_DIRS = [tmp_path]
    middleware = StaticFilesMiddleware(lambda request: HttpResponse("not a file", status=404))
    middleware.add_file_to_dictionary("/static/app.js", str(tmp_path / "app.js"))
    (tmp_path / "app.js").write_text("quite a bit longer")
    response = middleware(RequestFactory().get("/static/app.js"))
    assert response.content == b"quite a bit longer"
    assert response["Content-Length"] == str(len(response.content))


def test_names_with_a_hash_are_kept_for_ever(settings):
    import re

    immutable = re.compile(settings.WHITENOISE_IMMUTABLE_FILE_TEST)
    assert immutable.match("/static/assets/index-B3x_9aQz.js")
    assert not immutable.match("/static/pagoda/pages.css")
    assert not immutable.match("/static/assets/icon.svg")
