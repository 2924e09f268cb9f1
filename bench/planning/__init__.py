"""The capacity planner: how many requests a second, and so how many tenants, a device sustains; and how right it is."""
