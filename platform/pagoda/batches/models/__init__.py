"""Files and how many a tenant may have, batches of requests and what became of each line, and who hears of it."""

from pagoda.batches.models.batches import Batch, BatchLine
from pagoda.batches.models.files import StoredFile
from pagoda.batches.models.quotas import FileQuota
from pagoda.batches.models.webhooks import Webhook, WebhookAttempt, WebhookDelivery

__all__ = ["Batch", "BatchLine", "FileQuota", "StoredFile", "Webhook", "WebhookAttempt", "WebhookDelivery"]
