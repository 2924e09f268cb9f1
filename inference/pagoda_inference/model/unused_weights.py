"""Weights that a file has and its model makes no use of: whether the configuration says less than there is.

Much may stay unused: buffers of older versions, the tower of another modality, heads for training, layers that guess
further tokens. What may not is a further layer of those that the model has, or a further parameter of one of its own
modules: then the configuration is another model's, and its answers would be wrong.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


def unused_weights(model: Any, names: Iterable[str]) -> list[str]:
    """Those of ``names``, which the file has and ``model`` did not take, that it should have taken; layers in order.

    names: without those that the model's class knows to be of no use, as transformers tells them.
    """
    own = {_unnumbered(name) for name, module in model.named_modules() if any(True for _ in module.parameters(False))}
    guessing = _guessing_layers(model.config.get_text_config())
    unused = (name for name in names if _unnumbered(name.rpartition(".")[0]) in own and _layer(name) not in guessing)
    return sorted(unused, key=lambda name: (_layer(name), name))


def _guessing_layers(config: Any) -> range:
    """Numbers of the layers for multi-token prediction, which follow the model's own."""
    layers = getattr(config, "num_hidden_layers", 0)
    return range(layers, layers + (getattr(config, "num_nextn_predict_layers", None) or 0))


def _layer(name: str) -> int:
    """The first number in a weight's name; -1 where it has none."""
    found = _NUMBER.search(name)
    return -1 if found is None else int(found.group())


def _unnumbered(name: str) -> str:
    return _NUMBER.sub("#", name)
