"""For every part: how property tests draw examples, and that one that fails says how to repeat it."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# With CI set, the same examples each time: whether a commit passes is not chance. Without it, and in `make soak`, new
# ones. On a busy machine anything is slow, drawing examples too.
settings.register_profile(
    "pagoda",
    settings.get_profile("default"),
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("pagoda")
