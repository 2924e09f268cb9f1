"""The KV pool: blocks, block tables, the prefix index and the accounts that own it all. Pure Python, no torch."""
