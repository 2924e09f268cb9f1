"""For every part: a property test that fails says how to repeat it, and draws new examples each time, in CI too."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# On a busy machine anything is slow, drawing examples too.
settings.register_profile(
    "pagoda",
    settings.get_profile("default"),
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("pagoda")
