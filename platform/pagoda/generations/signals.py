"""What other parts may wait for."""

from django.dispatch import Signal

generation_settled = Signal()
"""Sent with ``generation`` inside the transaction that makes its result final, under the tenant's scope.

A receiver writes what follows from the result to the same database; an exception rolls the settlement back, and it is
tried again. Work beyond the database belongs into ``transaction.on_commit``.
"""
