"""Pagoda's web tier: people, conversations, quotas and the ways in. It never imports torch, transformers or triton."""

from pagoda.celery import app as celery_app

__all__ = ["celery_app"]
