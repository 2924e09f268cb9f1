"""Secrets that are shown once: API keys and invitation links. Only their SHA-256 is stored.

The secrets are random, 256 bits: a slow hash would protect nothing and cost every request.
"""

from __future__ import annotations

import hashlib
import secrets


def new_secret() -> str:
    """43 URL-safe characters from 256 random bits."""
    return secrets.token_urlsafe(32)


def digest(secret: str) -> str:
    """SHA-256 as 64 hexadecimal digits."""
    return hashlib.sha256(secret.encode()).hexdigest()
