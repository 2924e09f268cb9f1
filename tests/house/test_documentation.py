"""The documents keep up with the tree."""

from __future__ import annotations

import re

import pytest
from sources import PACKAGES, ROOT, modules

ARCHITECTURE = (ROOT / "docs/architecture.md").read_text()
README = (ROOT / "README.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

MAKE_VERBS = set(re.findall(r"^([a-z][a-z-]*):.*?## ", MAKEFILE, re.M))


def described(path: str) -> bool:
    """architecture.md has a line `| `path` | what it is |`."""
    return re.search(rf"^\| `{re.escape(path)}` +\| \S", ARCHITECTURE, re.M) is not None


@pytest.mark.parametrize("package", PACKAGES)
def test_architecture_has_one_line_per_module(package: str) -> None:
    """Every file with code of its own; migrations, and __init__ files of a docstring or less, speak for themselves."""
    root = ROOT / PACKAGES[package]
    missing = [
        name
        for module in modules(package)
        if "migrations" not in module.path.parts and module.path.name != "__init__.py"
        if not described(name := str(module.path.relative_to(root)))
    ]
    assert not missing, "describe in docs/architecture.md: " + ", ".join(missing)


def test_architecture_names_no_module_that_is_gone() -> None:
    named = re.findall(r"^\| `((?:pagoda|pagoda_inference|pagoda_kernels)/[^`]+\.py)` +\|", ARCHITECTURE, re.M)
    assert named
    gone = [name for name in named if not (ROOT / PACKAGES[name.split("/")[0]] / name).exists()]
    assert not gone


def test_architecture_names_every_folder_of_the_front_end() -> None:
    source = ROOT / "frontend/src"
    folders = [source, *sorted(path for path in source.rglob("*") if path.is_dir())]
    names = [f"{folder.relative_to(ROOT)}/" for folder in folders]
    missing = [name for name in names if not described(name)]
    assert not missing


def test_the_rules_of_the_pool_name_modules_and_tests_that_exist() -> None:
    """docs/kv-pool.md: each rule with the module that carries it out and the test that shows it."""
    text = (ROOT / "docs/kv-pool.md").read_text()
    engine = ROOT / "inference/pagoda_inference"
    named = re.findall(r"`((?:kv|scheduling|model)/\w+\.py)`", text)
    assert named
    missing = [name for name in named if not (engine / name).exists()]
    for path, test in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text):
        if not (ROOT / path).exists() or (test and f"def {test}(" not in (ROOT / path).read_text()):
            missing.append(f"{path} {test}")
    rules = re.findall(r"^\| (?!rule \||---)(.+) \|$", text, re.M)
    missing += [rule for rule in rules if "tests/" not in rule]
    assert not missing


def test_every_make_verb_is_explained() -> None:
    text = README + (ROOT / "CONTRIBUTING.md").read_text()
    assert {"up", "test", "test-quick", "lint", "format", "bench", "model", "frontend", "soak", "clean"} <= MAKE_VERBS
    missing = [verb for verb in MAKE_VERBS if f"make {verb}" not in text]
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_in_the_documents_exist(document) -> None:
    text = document.read_text()
    for verb in re.findall(r"(?:^|`|\s)make ([a-z][a-z-]+)(?=[`\s]|$)", "\n".join(code_of(text)), re.M):
        assert verb in MAKE_VERBS, f"make {verb}"
    from django.core.management import get_commands

    for command in re.findall(r"manage\.py ([a-z_]+)", text):
        assert command in get_commands(), f"manage.py {command}"


def code_of(text: str) -> list[str]:
    """Code spans and fenced blocks of a Markdown text."""
    blocks = re.findall(r"```.*?\n(.*?)```", text, re.S)
    return blocks + re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.S))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_inside_the_repository_lead_somewhere(document) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), target
