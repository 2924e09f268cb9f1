"""Our attention in transformers' models: the functions registered in its AttentionInterface.

transformers' model code calls them for every layer with the step's queries, keys and values after RoPE. What they are
attended to is decided by the ``paged_step`` that the caller passes through ``model(..., paged_step=...)``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol, cast

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

NAME = "pagoda_paged"
"""For serving: no mask is made."""
PROBE = "pagoda_probe"
"""For a run with a ProbeStep: the model makes its masks too, and each call is noted with the one it was given."""

MaskRule = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(sequence, head, position of the query, position of the key) -> whether the one sees the other."""

_ATTENTION = frozenset({"scaling", "sliding_window", "softcap", "s_aux"})
_NO_MATTER = frozenset(
    {
        "dropout",  # 0 outside training
        "is_causal",  # the mask says it better
        "position_ids",  # for kernels that look for sequences packed into one stream
        "cache_position",
        "position_embeddings",  # applied before the call
        "use_cache",
        "output_attentions",
        "output_hidden_states",
        "output_router_logits",
        "return_dict",
    }
)


class StepMissing(Exception):
    """A model's layers drop the ``paged_step`` that the model was called with: see ``hand_on``."""


class PagedStep(Protocol):
    """Attention of one forward pass."""

    def attend(
        self,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scaling: float,
        sliding_window: int | None,
        softcap: float | None,
        sinks: torch.Tensor | None,
    ) -> torch.Tensor:
        """Store key [T, Hkv, D] and value [T, Hkv, Dv] of ``layer``; attend query [T, Hq, D] -> [T, Hq, Dv]."""
        ...


class ProbedStep(PagedStep, Protocol):
    """Attention of a forward pass that finds out how a model calls it."""

    def note(self, layer: int, mask: MaskRule | None, unknown: frozenset[str]) -> None:
        """A call for ``layer``: its mask, None where the model made none or changed it; the names of arguments that
        paged attention does not know."""
        ...


def _paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    paged_step: PagedStep | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """query [1, Hq, T, D], key and value [1, Hkv, T, D] of one flattened stream -> [1, T, Hq, D].

    The window is the keyword's, never the module's: layers that alternate share a module attribute in some models.
    """
    attended = given(paged_step).attend(
        int(module.layer_idx),  # type: ignore[arg-type]
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        scaling=query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        sliding_window=sliding_window,
        softcap=softcap,
        sinks=s_aux,
    )
    return attended[None], None


def _probed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    paged_step: ProbedStep | None = None,
    **keywords: Any,
) -> tuple[torch.Tensor, None]:
    unknown = {name for name, argument in keywords.items() if argument is not None} - _ATTENTION - _NO_MATTER
    mask = getattr(attention_mask, "pagoda_rule", None)
    step = cast(ProbedStep, given(paged_step))
    step.note(int(module.layer_idx), mask, frozenset(unknown))  # type: ignore[arg-type]
    return _paged_attention(module, query, key, value, attention_mask, paged_step=step, **keywords)


def hand_on(model: torch.nn.Module) -> None:
    """Let the steps that ``model`` is called with reach attention past layers that drop keywords they do not know."""

    def remember(module: torch.nn.Module, inputs: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        _running.step = keywords.get("paged_step")

    def forget(module: torch.nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        _running.step = None

    model.register_forward_pre_hook(remember, with_kwargs=True)
    model.register_forward_hook(forget, always_call=True)


_running = threading.local()
"""step: what the model that runs on this thread was called with, where ``hand_on`` was needed."""


def given(step: PagedStep | None) -> PagedStep:
    """``step``, or else the one of the model's own call. Raises StepMissing."""
    step = step or getattr(_running, "step", None)
    if step is None:
        raise StepMissing
    return step


def _mask_with_its_rule(*, mask_function: MaskRule, **keywords: Any) -> torch.Tensor:
    """The mask of eager attention, which remembers what it was made from."""
    mask: Any = eager_mask(mask_function=mask_function, **{**keywords, "allow_is_bidirectional_skip": False})
    mask.pagoda_rule = mask_function
    return mask


AttentionInterface.register(NAME, _paged_attention)
AttentionInterface.register(PROBE, _probed_attention)
AttentionMaskInterface.register(PROBE, _mask_with_its_rule)
