"""POST /v1/embeddings: understood, and refused, since no model here gives any."""

from __future__ import annotations

from typing import NoReturn

from django.http import HttpRequest
from ninja import Router

from pagoda.api import served_models
from pagoda.api.authentication import scoped
from pagoda.api.errors import ApiError
from pagoda.api.requests.tokens import EmbeddingRequest

router = Router(tags=["Embeddings"])


@router.post("/embeddings", auth=scoped("chat"), summary="Create embeddings (refused)")
async def create_embeddings(request: HttpRequest, body: EmbeddingRequest) -> NoReturn:
    """The models served here write text; none of them gives embeddings."""
    served_models.find_model(body.model)
    raise ApiError("not_supported_by_model", "This model writes text: it does not give embeddings.", "model")
