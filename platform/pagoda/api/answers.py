"""Answers put together from their pieces, for callers that want them whole."""

from __future__ import annotations

from dataclasses import dataclass, field

from pagoda.api.running import Running
from pagoda_inference.protocol import TokenLogprobs


@dataclass(slots=True)
class Answer:
    """One choice. finish: the engine's reason. score: the sum of its tokens' log probabilities, where asked for.

    told: tokens with their log probabilities, and the text that came with them, in the order they came.
    """

    texts: list[str] = field(default_factory=list)
    finish: str = "stop"
    tokens: int = 0
    score: float | None = None
    told: list[tuple[tuple[TokenLogprobs, ...], str]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def logprobs(self) -> list[TokenLogprobs]:
        return [token for tokens, _ in self.told for token in tokens]

    @property
    def mean_logprob(self) -> float:
        """Of a token: what answers of different lengths are compared by."""
        return (self.score or 0.0) / max(1, self.tokens)


async def whole(running: Running) -> list[Answer]:
    """Every answer, in the order of their indices. Raises ApiError."""
    answers = [Answer() for _ in range(len(running.calls) * running.answers)]
    async for piece in running.pieces():
        answer = answers[piece.index]
        answer.texts.append(piece.text)
        if piece.delta is not None:
            answer.tokens += len(piece.delta.token_ids)
            answer.told.append((piece.delta.logprobs, piece.text))
            if piece.delta.score is not None:
                answer.score = piece.delta.score
        if piece.finish is not None:
            answer.finish = piece.finish
    return answers
