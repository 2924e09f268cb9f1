"""Where KV goes when the pool has no room for it: host memory, then disk. docs/tiers.md has the whole picture."""
