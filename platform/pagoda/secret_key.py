"""The installation's secret key where the environment gives none: made once, readable by its owner alone."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def load_secret_key(home: Path) -> str:
    """The key in ``<home>/secret_key``; written (0600) by whoever comes first.

    Several processes start at once on a new installation: a hard link is made only if the name is free, so all of
    them read the same, complete file.
    """
    path = home / "secret_key"
    if not path.exists():
        home.mkdir(parents=True, exist_ok=True)
        draft = home / f".secret_key.{os.getpid()}.{secrets.token_hex(4)}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(64))
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text().strip()
