"""platform/, inference/ and kernels/ are source roots, never packages."""

from __future__ import annotations

import subprocess
import sys

import pytest
from sources import PACKAGES, ROOT, SOURCE_ROOTS


@pytest.mark.parametrize("root", SOURCE_ROOTS)
def test_source_root_is_not_a_package(root: str) -> None:
    assert not (ROOT / root / "__init__.py").exists(), (
        f"{root}/ is a source root: with an __init__.py it would shadow another package of that name"
    )


@pytest.mark.parametrize(("package", "root"), PACKAGES.items())
def test_each_source_root_holds_exactly_its_package(package: str, root: str) -> None:
    folders = {path.name for path in (ROOT / root).iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == {package}


def test_platform_is_the_standard_librarys() -> None:
    """From the checkout's root, where `python -m` puts the current folder first on the path."""
    script = "import platform, sys; sys.exit(not platform.python_version())"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def test_manage_py_runs_from_a_bare_checkout() -> None:
    """Without the editable install: -S would also hide Django, so the finder is removed instead."""
    script = (
        "import sys, runpy; sys.meta_path = [f for f in sys.meta_path if 'editable' not in type(f).__module__];"
        "sys.path = [p for p in sys.path if not p.endswith(('/platform', '/inference', '/kernels'))];"
        "sys.argv = ['manage.py', 'version']; runpy.run_path('manage.py', run_name='__main__')"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
