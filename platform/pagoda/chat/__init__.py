"""Conversations: trees of messages, and the websocket that browsers and apps speak (docs/websocket.md)."""
