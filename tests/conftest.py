"""Fixtures for every part."""
