"""Token lengths by law, for use without traces: fitted to the workloads of the PagedAttention paper (Kwon et al.,
SOSP'23).

**ShareGPT** and **Alpaca** match the means of the paper's figure 11: 161.31 input and 337.99 output tokens, and 19.31
and 58.45. Input is lognormal and output Weibull, the best of lognormal, gamma and Weibull for the output of real
samples; both are drawn independently, rounded, at least 1, and drawn again while their sum exceeds 2,048. That cap
takes 6 % off ShareGPT's input mean, so that its law aims higher (mu 4.16 and scale 361 in place of 4.0616 and 355.90):
161.4 and 339.3 are the means of 200,000 draws. No closed law fits ShareGPT's input well (half of real prompts have 30
tokens or fewer, 6.6 % more than 700; Kolmogorov-Smirnov distance 0.085): take real pairs where they are at hand.

**Chatbot** is the paper's section 6.5: a prompt of the conversation's last 1,024 tokens and an answer of at most 1,024.
Fitted to 31,489 rounds of real ShareGPT conversations: 28.3 % of rounds are first ones, with a lognormal prompt; the
context of later ones is Weibull; so is the answer; all are cut at 1,024. Kolmogorov-Smirnov distances to the real
rounds: prompt 0.023, output 0.040.

**WMT16** is the task of the shared-prefix workload (figure 16; the prefixes have 80 and 341 tokens). AN ASSUMPTION, not
a fit: the paper prints no lengths, and no sentences were counted. Input and output are each lognormal with mean 30 and
sigma 0.6, cut to 3..150 tokens, with a rank correlation of 0.9.
"""

from __future__ import annotations

import enum
import math
import random
from dataclasses import dataclass

LONGEST_PAIR = 2048
LONGEST_ROUND = 1024
FIRST_ROUNDS = 0.2831
WMT16_SHORTEST, WMT16_LONGEST = 3, 150
WMT16_RANK_CORRELATION = 0.9
ONE_SHOT_PREFIX, FIVE_SHOT_PREFIX = 80, 341
"""Tokens of the prefixes in the paper's figure 16."""


@dataclass(frozen=True)
class Lognormal:
    """exp of a normal variable with mean ``mu`` and standard deviation ``sigma``, in tokens."""

    mu: float
    sigma: float

    def draw(self, rng: random.Random) -> float:
        return rng.lognormvariate(self.mu, self.sigma)


@dataclass(frozen=True)
class Weibull:
    """With shape ``k`` and ``scale``, in tokens; k = 1 is the exponential law."""

    k: float
    scale: float

    def draw(self, rng: random.Random) -> float:
        return rng.weibullvariate(self.scale, self.k)


class Workload(enum.Enum):
    SHAREGPT = "sharegpt"
    ALPACA = "alpaca"
    CHATBOT = "chatbot"
    WMT16 = "wmt16"

    @property
    def title(self) -> str:
        """What people call it."""
        return {"sharegpt": "ShareGPT", "alpaca": "Alpaca", "chatbot": "Chatbot", "wmt16": "WMT16"}[self.value]


PAIRS = {
    Workload.SHAREGPT: (Lognormal(4.16, 1.6634), Weibull(1.1585, 361)),
    Workload.ALPACA: (Lognormal(2.8399, 0.4913), Weibull(1.0056, 58.59)),
}
"""Laws of input and output, drawn again while their sum exceeds LONGEST_PAIR."""

PAPER_MEANS = {Workload.SHAREGPT: (161.31, 337.99), Workload.ALPACA: (19.31, 58.45)}
"""Mean input and output tokens in the paper's figure 11."""

CHATBOT_FIRST_PROMPT, CHATBOT_LATER_PROMPT = Lognormal(3.5717, 1.6608), Weibull(1.49, 1117.9)
CHATBOT_OUTPUT = Weibull(1.20, 343.2)
WMT16_SENTENCE = Lognormal(math.log(30) - 0.6**2 / 2, 0.6)


def draw(workload: Workload, rng: random.Random) -> tuple[int, int]:
    """Input and output tokens of one request; a WMT16 input is without its prefix."""
    if workload is Workload.CHATBOT:
        return _round(rng)
    if workload is Workload.WMT16:
        return _translation(rng)
    prompt_law, output_law = PAIRS[workload]
    while True:
        prompt, output = _tokens(prompt_law.draw(rng)), _tokens(output_law.draw(rng))
        if prompt + output <= LONGEST_PAIR:
            return prompt, output


def _round(rng: random.Random) -> tuple[int, int]:
    prompt = CHATBOT_FIRST_PROMPT if rng.random() < FIRST_ROUNDS else CHATBOT_LATER_PROMPT
    return _tokens(prompt.draw(rng), LONGEST_ROUND), _tokens(CHATBOT_OUTPUT.draw(rng), LONGEST_ROUND)


def _translation(rng: random.Random) -> tuple[int, int]:
    """Two normal variables with the correlation that gives their ranks theirs (Pearson's 2 sin(pi r / 6))."""
    correlation = 2 * math.sin(math.pi * WMT16_RANK_CORRELATION / 6)
    first = rng.gauss(0, 1)
    second = correlation * first + math.sqrt(1 - correlation**2) * rng.gauss(0, 1)
    law = WMT16_SENTENCE
    lengths = (round(math.exp(law.mu + law.sigma * normal)) for normal in (first, second))
    source, translation = (min(max(length, WMT16_SHORTEST), WMT16_LONGEST) for length in lengths)
    return source, translation


def _tokens(length: float, longest: float = math.inf) -> int:
    return int(min(max(1, round(length)), longest))
