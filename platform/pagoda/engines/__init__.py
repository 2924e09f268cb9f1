"""Connections to the engines, which of them serves a conversation, and what they report."""
