"""Talking to an engine, from asyncio or from blocking code. Needs neither torch nor Django."""

from pagoda_inference.client.engine_client import EngineClient
from pagoda_inference.client.errors import EngineRefused, EngineUnavailable
from pagoda_inference.client.subscription import Subscription
from pagoda_inference.client.sync_client import SyncEngineClient

__all__ = ["EngineClient", "EngineRefused", "EngineUnavailable", "Subscription", "SyncEngineClient"]
