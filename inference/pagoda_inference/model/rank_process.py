"""A rank of a tensor parallel model besides the first, as a process: it does what rank 0 tells it, until that is gone.

``python -m pagoda_inference.model.rank_process STEPS TRANSFERS``: two descriptors of pipes from rank 0.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from multiprocessing.connection import Connection

from pagoda_inference import logs
from pagoda_inference.model.errors import ModelLoadError
from pagoda_inference.model.loading import load_rank
from pagoda_inference.model.paged_model import PagedModel
from pagoda_inference.model.ranks import Copy, Failed, Job, Read, Run, Write, join

logger = logging.getLogger(__name__)


class Progress:
    """How many commands that change blocks have been begun: blocks are moved in the order in which rank 0 sees it."""

    def __init__(self) -> None:
        self._begun = 0
        self._changed = threading.Condition()

    def advance(self) -> None:
        with self._changed:
            self._begun += 1
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._begun >= count)


def serve(steps: Connection, transfers: Connection) -> None:
    """Load, and run steps until rank 0 closes the pipe."""
    job: Job = steps.recv()
    steps.send("ready")
    join(job)
    try:
        paged = load_rank(job, steps)
    except ModelLoadError as error:
        steps.send(Failed(str(error)))
        return
    progress = Progress()
    threading.Thread(target=move_blocks, args=(paged, transfers, progress), daemon=True).start()
    while True:
        command = steps.recv()
        match command:
            case Run(step):
                paged.logits(step)
            case Copy(pairs):
                paged.copy_blocks(pairs)
        progress.advance()


def move_blocks(paged: PagedModel, transfers: Connection, progress: Progress) -> None:
    """Answer what is asked of blocks. When rank 0 is gone, the process ends, whatever its main thread waits for."""
    while True:
        try:
            command = transfers.recv()
        except (EOFError, OSError):
            os._exit(0)
        progress.wait_for(command.after)
        try:
            answer = None
            match command:
                case Read(_, ids):
                    answer = paged.read_blocks(ids)
                case Write(_, ids, payloads):
                    paged.write_blocks(ids, payloads)
            transfers.send(answer)
        except Exception as error:
            logs.failure(logger, "rank_transfer_failed", error)
            transfers.send(Failed(f"{type(error).__name__} on another rank"))


def main() -> None:
    """Exits with 0 when rank 0 has closed the pipe, 1 after a failure, which is logged."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # sent to all processes of a service; rank 0 ends this one
    logs.configure()
    steps, transfers = (Connection(int(descriptor)) for descriptor in sys.argv[1:3])
    code = 0
    try:
        serve(steps, transfers)
    except (EOFError, BrokenPipeError):
        pass
    except Exception as error:
        logs.failure(logger, "rank_failed", error)
        code = 1
    sys.stderr.flush()
    os._exit(code)  # the other ranks may be gone: nobody is waited for


if __name__ == "__main__":
    main()
