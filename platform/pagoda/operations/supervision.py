"""The parts under one supervisor: supervisord, with a configuration made for this installation.

supervisord restarts what dies and rotates the logs; this module writes its configuration, starts it as a child, asks it
how the parts are, and sees to it that nothing is left when it ends.
"""

from __future__ import annotations

import os
import subprocess
import xmlrpc.client
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from supervisor.xmlrpc import SupervisorTransport

from pagoda.operations.orphans import (
    adopt_orphans,
    end_descendants,
    python_module_that_ends_with_us,
    reap_orphans,
)
from pagoda.operations.parts import Part
from pagoda_inference.address import default_address

LOG_BYTES = 10 * 1024 * 1024
LOG_BACKUPS = 5


@dataclass(frozen=True)
class PartState:
    """What supervisord says of a part. ``pid`` is 0 while it does not run."""

    name: str
    state: str
    pid: int


class Supervisor:
    """supervisord as a child of this process.

    home: PAGODA_HOME; the configuration goes to ``run/``, one log per part to ``log/``.
    environment: of supervisord and thereby of every part.
    """

    def __init__(self, home: Path, parts: Sequence[Part], environment: dict[str, str]) -> None:
        self._home = home
        self._parts = parts
        self._environment = environment
        # Beside the engine's socket, and no longer in name: a socket's path must be short.
        self._socket = Path(default_address(home).removeprefix("unix:")).with_name("up.sock")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def configuration_path(self) -> Path:
        return self._home / "run" / "supervisord.conf"

    def log_path(self, part: str) -> Path:
        return self._home / "log" / f"{part}.log"

    def start(self) -> None:
        for folder in (self._socket.parent, self.configuration_path.parent, self._home / "log"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.configuration_path.write_text(self.configuration())
        adopt_orphans()
        with (self._home / "log" / "supervisor.stderr.log").open("wb") as complaints:
            self._process = subprocess.Popen(
                python_module_that_ends_with_us(
                    "supervisor.supervisord", "--configuration", str(self.configuration_path)
                ),
                env=self._environment,
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                # A Ctrl-C is ours to pass on: twice would cut the orderly stop short.
                process_group=0,
                umask=0o077,
            )

    def configuration(self) -> str:
        """supervisord.conf. ``%`` introduces an expansion there, and in a log's path another one after it: those paths
        are relative to PAGODA_HOME, where supervisord runs."""
        common = {
            "autorestart": "true",
            # A part that fails at once is tried again later and later, never given up.
            "startsecs": 1,
            "startretries": 1_000_000,
            # The signal goes to the part alone: it ends its own children in order. Only the last resort takes all.
            "stopasgroup": "false",
            "killasgroup": "true",
            "redirect_stderr": "true",
            "stdout_logfile_maxbytes": LOG_BYTES,
            "stdout_logfile_backups": LOG_BACKUPS,
        }
        sections: dict[str, dict[str, Any]] = {
            "supervisord": {
                "nodaemon": "true",
                "silent": "true",
                "logfile": "log/supervisor.log",
                "logfile_maxbytes": LOG_BYTES,
                "logfile_backups": LOG_BACKUPS,
                "pidfile": "run/supervisord.pid",
                **({"user": "root"} if os.getuid() == 0 else {}),
            },
            "unix_http_server": {"file": self._socket, "chmod": "0700"},
            "rpcinterface:supervisor": {
                "supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"
            },
            "supervisorctl": {"serverurl": f"unix://{self._socket}"},
        }
        for order, part in enumerate(self._parts):
            sections[f"program:{part.name}"] = {
                "command": " ".join(f'"{word}"' for word in part.command),
                "priority": order,
                "stopwaitsecs": part.stop_wait_s,
                "directory": Path.cwd(),
                "stdout_logfile": f"log/{part.name}.log",
                **common,
            }
        return "".join(
            f"[{title}]\n" + "".join(f"{key} = {_escaped(value)}\n" for key, value in values.items()) + "\n"
            for title, values in sections.items()
        )

    def exit_status(self) -> int | None:
        """None while supervisord runs. Collects what else has died meanwhile and was left to this process."""
        if self._process is None:
            return None
        reap_orphans(except_for=self._process.pid)
        return self._process.poll()

    def states(self) -> list[PartState]:
        """Of every part; empty while supervisord does not answer (it is starting or ending)."""
        transport = SupervisorTransport(serverurl=f"unix://{self._socket}")
        try:
            server: Any = xmlrpc.client.ServerProxy("http://localhost", transport)
            told = server.supervisor.getAllProcessInfo()
            return [PartState(info["name"], info["statename"], info["pid"]) for info in told]
        except (OSError, xmlrpc.client.Error, ValueError):
            return []
        finally:
            transport.close()

    def log_tail(self, part: str, lines: int = 20) -> str:
        try:
            with self.log_path(part).open(errors="replace") as log:
                return "".join(deque(log, maxlen=lines))
        except OSError:
            return ""

    def stop(self) -> None:
        """End every part, and then whatever they left behind."""
        if self._process is not None:
            patience_s = sum(part.stop_wait_s for part in self._parts) + 5
            self._process.terminate()
            try:
                self._process.wait(patience_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        end_descendants()


def _escaped(value: Any) -> str:
    return str(value).replace("%", "%%")
