"""The tree's Python modules and what they import, read with ast (nothing is executed)."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE_ROOTS = ("platform", "inference", "kernels")
PACKAGES = {"pagoda": "platform", "pagoda_inference": "inference", "pagoda_kernels": "kernels"}


@dataclass(frozen=True)
class Module:
    """A source file: its dotted name, path, and whether it is a package's __init__."""

    name: str
    path: Path

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    def imports(self, *, on_import_only: bool = False) -> set[str]:
        """Dotted names this file imports; `from a import b` gives both ``a`` and ``a.b``.

        on_import_only: leave out what runs later or never: function bodies and ``if TYPE_CHECKING``.
        """
        tree = ast.parse(self.path.read_text(), str(self.path))
        names: set[str] = set()
        for node in _statements(tree, on_import_only):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                names.add(base)
                names |= {f"{base}.{alias.name}" for alias in node.names}
        return names

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        parts = parts[: len(parts) - node.level + self.is_package]
        return ".".join([*parts, *([node.module] if node.module else [])])


def _statements(tree: ast.AST, on_import_only: bool) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if on_import_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if on_import_only and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        yield node
        yield from _statements(node, on_import_only)


def modules(package: str) -> list[Module]:
    """Every module of an import package, by file."""
    root = ROOT / PACKAGES[package]
    found = []
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found.append(Module(".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


def tracked_files() -> list[Path]:
    """Files of the repository: tracked ones, and new ones that git does not ignore."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]
