"""The models that can be asked for, and the engine that a call goes to."""

from __future__ import annotations

import hashlib
import time

from django.conf import settings

from pagoda.api.errors import ApiError
from pagoda.engines import connections, reports, routing
from pagoda_inference.protocol import ModelInfo

STARTED = int(time.time())
"""What models are said to be created at: an engine does not know when its model was."""


def served() -> dict[str, ModelInfo]:
    """The models of the engines that can be reached now, by id."""
    models: dict[str, ModelInfo] = {}
    for address in settings.PAGODA_ENGINES:
        info = connections.model_of(address)
        if info is not None and reports.is_reachable(address):
            models.setdefault(info.id, info)
    return models


def find_model(name: str) -> ModelInfo:
    """Raises ApiError: model_not_found, or engine_unavailable where no engine with it can be reached."""
    models = served()
    if name in models:
        return models[name]
    known = [connections.model_of(address) for address in settings.PAGODA_ENGINES]
    if not models or any(info is not None and info.id == name for info in known):
        raise ApiError("engine_unavailable", "No engine that serves a model can be reached now: try again.")
    raise ApiError("model_not_found", "There is no such model here: GET /v1/models lists those there are.", "model")


def choose_engine(model: ModelInfo, affinity: str) -> str:
    """The address of a reachable engine with the model: the same one for the same ``affinity``, whose cache is warm."""
    lineage = hashlib.sha256(affinity.encode()).hexdigest()
    for address in routing.ranked(lineage):
        info = connections.model_of(address)
        if info is not None and info.id == model.id and reports.is_reachable(address):
            return address
    raise ApiError("engine_unavailable", "No engine that serves a model can be reached now: try again.")


def fingerprint(model: ModelInfo) -> str:
    """Changes when the same seed may give another answer."""
    what = f"{model.id} {model.version} {model.dtype} {model.device}"
    return f"fp_{hashlib.sha256(what.encode()).hexdigest()[:10]}"
