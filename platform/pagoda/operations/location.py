"""Where this installation is reached, for people and scripts on this machine."""

from __future__ import annotations

import os
import urllib.request
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path

from django.conf import settings


@dataclass(frozen=True)
class Location:
    """The web tier's address; ``url`` has no slash at its end."""

    url: str

    @property
    def ws_url(self) -> str:
        return "ws" + self.url.removeprefix("http") + "/ws/v1"

    @property
    def api_base(self) -> str:
        return self.url + "/v1"

    def open(self, path: str, timeout_s: float) -> HTTPResponse:
        """GET, past any proxy of the environment. Raises OSError (HTTPError for a status of 400 and above)."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        return opener.open(self.url + path, timeout=timeout_s)


def configured_location() -> Location:
    """From PAGODA_HOST and PAGODA_PORT; an address that stands for all interfaces is reached on loopback."""
    host = settings.PAGODA_HOST
    if host in ("0.0.0.0", "::", ""):
        host = "127.0.0.1"
    return Location(f"http://{f'[{host}]' if ':' in host else host}:{settings.PAGODA_PORT}")


def remember_location(home: Path, location: Location) -> None:
    """So that other commands find a `make up` that was given another port."""
    (home / "run").mkdir(parents=True, exist_ok=True)
    (home / "run" / "url").write_text(location.url)


def current_location(home: Path) -> Location:
    """What the last `up` of this PAGODA_HOME used, unless the environment says otherwise."""
    if os.environ.get("PAGODA_PORT") or os.environ.get("PAGODA_HOST"):
        return configured_location()
    try:
        return Location((home / "run" / "url").read_text().strip())
    except FileNotFoundError:
        return configured_location()
