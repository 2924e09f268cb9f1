"""What is asked of a card: the requests of a trace, at any rate, with their contents and tenants."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass

from bench.simulation.job import Job
from bench.traces import arrivals
from bench.traces.content import Content
from bench.traces.fitting import fit
from bench.traces.request import TracedRequest
from bench.workloads import HIGHEST_TOKEN, LOWEST_TOKEN


@dataclass(frozen=True)
class Demand:
    """requests: of the trace, shorter than the context. clients: how many different ones; 0 where it does not say.

    client_rate: requests/s of one of them on average, in the trace's own time; None where it does not say.
    """

    requests: Sequence[TracedRequest]
    cut: int
    clients: int
    client_rate: float | None
    seed: int

    @classmethod
    def of(cls, trace: Sequence[TracedRequest], context: int, seed: int) -> Demand:
        """Raises ValueError where no request is left."""
        fitted = fit(trace, context, "cut")
        if not fitted.requests:
            raise ValueError("no request of the trace has a prompt and an answer")
        names = {request.client for request in trace if request.client}
        length = max(request.at_s for request in trace)
        rate = len(trace) / length / len(names) if names and length > 0 else None
        return cls(fitted.requests, fitted.cut, len(names), rate, seed)

    def jobs(self, rate: float, count: int) -> list[Job]:
        """``count`` requests, ``rate`` of them a second: the trace's own arrivals, stretched, or Poisson's where it has
        none. A trace that is shorter comes again, with other contents.
        """
        requests = self._repeated(count)
        if arrivals.has_arrivals(requests):
            timed = arrivals.at_rate(requests, rate)
        else:
            timed = arrivals.poisson(requests, rate, random.Random(self.seed))
        content = Content(self.seed, LOWEST_TOKEN, HIGHEST_TOKEN - 1)
        return [
            Job(
                number,
                request.at_s,
                request.prompt_tokens,
                request.output_tokens,
                tenant=request.client or "bench",
                tokens=content.prompt(request, number),
                conversation=request.conversation,
            )
            for number, request in enumerate(sorted(timed, key=lambda request: request.at_s))
        ]

    def _repeated(self, count: int) -> list[TracedRequest]:
        passes = -(-count // len(self.requests))
        last = max(request.at_s for request in self.requests)
        length = last * (1 + 1 / len(self.requests))
        most = max((block for request in self.requests for block in request.blocks), default=0) + 1
        again = [
            dataclasses.replace(
                request,
                at_s=request.at_s + number * length,
                conversation=f"{number} {request.conversation}" if request.conversation else "",
                blocks=tuple(number * most + block for block in request.blocks),
            )
            for number in range(passes)
            for request in self.requests
        ]
        return again[:count]
