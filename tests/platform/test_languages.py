"""Server-rendered pages speak Korean as well as English, in full."""

import ast
import gettext
import re
from pathlib import Path

PLATFORM = Path(__file__).parents[2] / "platform" / "pagoda"
KOREAN = PLATFORM / "locale" / "ko" / "LC_MESSAGES"
REFRESH = "run `django-admin makemessages -l ko` in platform/pagoda, translate, then `django-admin compilemessages`"
TRANSLATORS = {"_", "gettext", "gettext_lazy"}


def texts_of_catalogue():
    entries = re.findall(r'^msgid "(.+)"\nmsgstr "(.*)"$', (KOREAN / "django.po").read_text(), re.MULTILINE)
    return {ast.literal_eval(f'"{key}"'): ast.literal_eval(f'"{value}"') for key, value in entries}


def texts_of_templates():
    for path in PLATFORM.rglob("templates/**/*"):
        if path.is_file():
            yield from re.findall(r"{% translate ['\"](.+?)['\"] (?:as \w+ )?%}", path.read_text())


def texts_of_code():
    """Also those inside of f-strings, which ``makemessages`` does not see."""
    for path in PLATFORM.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())) if "migrations" not in path.parts else ():
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            if name in TRANSLATORS and isinstance(node.args[0], ast.Constant):
                yield node.args[0].value


def test_every_text_of_templates_and_code_is_translated():
    catalogue = texts_of_catalogue()
    texts = {*texts_of_templates(), *texts_of_code()}
    assert {"repeatable call", "repeatable calls"} < texts
    assert {text for text in texts if not catalogue.get(text)} == set(), REFRESH
    assert [text for text, korean in catalogue.items() if not korean] == [], REFRESH


def test_the_compiled_catalogue_is_the_written_one():
    with (KOREAN / "django.mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)
    assert {text: compiled.gettext(text) for text in texts_of_catalogue()} == texts_of_catalogue(), REFRESH


def test_placeholders_survive_translation():
    for text, korean in texts_of_catalogue().items():
        assert set(re.findall(r"%\(\w+\)s", text)) == set(re.findall(r"%\(\w+\)s", korean)), text
