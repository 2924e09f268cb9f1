"""GET /v1/models: what can be asked for."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from ninja import Router

from pagoda.api import served_models
from pagoda.api.authentication import scoped
from pagoda.api.errors import json_response
from pagoda.api.wire import Model, ModelList
from pagoda_inference.protocol import ModelInfo

router = Router(tags=["Models"])


@router.get("/models", auth=scoped(), summary="List models")
async def list_models(request: HttpRequest) -> HttpResponse:
    """The models of all engines that can be reached now."""
    return json_response(ModelList([_shown(info) for info in served_models.served().values()]))


@router.get("/models/{path:model}", auth=scoped(), summary="Retrieve a model")
async def retrieve_model(request: HttpRequest, model: str) -> HttpResponse:
    """One model."""
    return json_response(_shown(served_models.find_model(model)))


def _shown(info: ModelInfo) -> Model:
    return Model(info.id, served_models.STARTED, info.context_length)
