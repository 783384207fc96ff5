"""How hypothesis searches: the same examples every time where CI is set, fresh ones on a developer's machine."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No deadline in either: a slow machine is no bug, and no test asserts speed.
settings.register_profile(
    "ci", derandomize=True, max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("dev", max_examples=100, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))
