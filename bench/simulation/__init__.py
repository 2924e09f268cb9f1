"""Serving systems in virtual time: the real scheduler and pool, the paper's baselines, and what their steps cost."""
