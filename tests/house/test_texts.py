"""What must not be in the repository: places of one machine, registries' addresses, leftovers."""

from __future__ import annotations

import re

from sources import ROOT, tracked_files

# Written in pieces so that this file does not find itself.
FORBIDDEN = {
    "a path of somebody's machine": re.compile(r"(?<![\w.])/(?:ho" r"me|ro" r"ot|wo" r"rk|Us" r"ers)/\w"),
    "a package registry's address": re.compile(
        r"py" r"pi\.org|python" r"hosted\.org|registry\.npm" r"js\.org|deb\.deb" r"ian\.org|download\.py" r"torch\.org"
    ),
    "a merge left undone": re.compile(r"^(?:<{7}|>{7}) ", re.M),
    "work left for later": re.compile(r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b"),
    "a breakpoint": re.compile(r"\bbreak" r"point\(\)|import p" r"db\b"),
}
BINARY = {".png", ".jpg", ".ico", ".woff2", ".gz", ".gguf", ".safetensors", ".mo"}


def test_no_file_has_a_forbidden_text() -> None:
    found = []
    for path in tracked_files():
        if path.suffix in BINARY or path.name in {"LICENSE", "package-lock.json"}:
            continue
        text = path.read_text(errors="replace")
        for what, pattern in FORBIDDEN.items():
            if match := pattern.search(text):
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{path.relative_to(ROOT)}:{line}: {what}: {match.group().strip()}")
    assert not found, "\n".join(found)


def test_the_lock_file_names_no_registry() -> None:
    lock = ROOT / "frontend/package-lock.json"
    assert '"resolved"' not in lock.read_text(), "npm install --omit-lockfile-registry-resolved leaves them out"


def test_nothing_generated_is_tracked() -> None:
    import subprocess

    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--ignored", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    assert not tracked


def test_source_files_stay_one_idea_long() -> None:
    """Under 300 lines is the habit; 400 is the wall."""
    too_long = []
    for path in tracked_files():
        if path.suffix == ".py" and path.parts[len(ROOT.parts)] in {"platform", "inference", "kernels"}:
            lines = path.read_text().count("\n")
            if lines > 400 and path.name not in {"settings.py"} and "migrations" not in path.parts:
                too_long.append(f"{path.relative_to(ROOT)}: {lines}")
    assert not too_long
