"""POST /v1/batches, and the list's query."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pagoda.api.requests.fields import Body

MAX_METADATA = 16
MIN_EXPIRY_S, MAX_EXPIRY_S = 3600, 30 * 24 * 3600
"""Seconds that a client may have a file kept: an hour to 30 days."""

Endpoint = Literal["/v1/chat/completions", "/v1/completions"]
MetadataKey = Annotated[str, Field(max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]


class ExpiresAfter(Body):
    """When a file is deleted: so many seconds after it was made."""

    anchor: Literal["created_at"]
    seconds: int = Field(ge=MIN_EXPIRY_S, le=MAX_EXPIRY_S)


class BatchRequest(Body):
    """What a batch reads, and where its lines would go one by one."""

    input_file_id: Annotated[str, Field(max_length=64)]
    endpoint: Endpoint
    completion_window: Literal["24h"]
    metadata: dict[MetadataKey, MetadataValue] | None = Field(None, max_length=MAX_METADATA)
    output_expires_after: ExpiresAfter | None = None


class BatchPage(Body):
    """Which batches are listed."""

    model_config = {"strict": False}

    after: str | None = Field(None, max_length=64)
    limit: int = Field(20, ge=1, le=100)
