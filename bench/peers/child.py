"""The other end of a peer: a process that loads once, then answers rounds until its standard input ends.

One JSON object a line comes in, one goes out. Imports nothing but the standard library: it runs in the peers' own
environments.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

Generate = Callable[[list[list[int]], list[int]], list[list[int]]]
"""Answers of exactly so many tokens to these prompts, all asked at once."""


def serve(load: Callable[[], Generate], about: Callable[[], dict[str, Any]] = dict) -> None:
    """Load, say so with what ``about`` tells of the configuration, then serve rounds.

    Everything else that is printed goes to standard error. Raises RuntimeError when an answer has another length. At
    the end of the input, and on the SIGTERM that a killed parent causes, all processes of its session end with it.
    """
    signal.signal(signal.SIGTERM, end_session)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    generate = load()
    say(about())
    for line in sys.stdin:
        work = json.loads(line)
        begin = time.perf_counter()
        token_ids = generate(work["prompts"], work["outputs"])
        seconds = time.perf_counter() - begin
        if [len(answer) for answer in token_ids] != work["outputs"]:
            raise RuntimeError(
                f"answers of {[len(answer) for answer in token_ids]} instead of {work['outputs']} tokens"
            )
        say({"seconds": seconds, "token_ids": token_ids})
    end_session()


def end_session(*_: object) -> None:
    """Kill this process and those that it has started, where it leads a session; else end it alone."""
    if os.getsid(0) == os.getpid():
        os.killpg(0, signal.SIGKILL)
    sys.exit()
