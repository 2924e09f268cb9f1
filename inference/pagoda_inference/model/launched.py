"""A step that the device works on while the host does something else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pagoda_inference.model.backend import Chunk, Result


class Launched:
    """What ``launch`` gives: the step is queued, its results are there after ``wait``.

    Until then the backend must not be given another step, nor blocks of this one be copied elsewhere.
    """

    def __init__(self, finish: Callable[[], list[Result]]) -> None:
        self._finish = finish

    def wait(self) -> list[Result]:
        """The results of the step's chunks, as ``Backend.run`` returns them. Once; raises what ``run`` raises."""
        return self._finish()


class ComputedAtLaunch:
    """What a Backend that has nothing but ``run`` says of the rest: a step is computed when it is launched."""

    asynchronous = False

    def run(self, chunks: Sequence[Chunk]) -> list[Result]:
        raise NotImplementedError

    def launch(self, chunks: Sequence[Chunk]) -> Launched:
        results = self.run(chunks)
        return Launched(lambda: results)

    def close(self) -> None:
        """There is nothing to end."""
