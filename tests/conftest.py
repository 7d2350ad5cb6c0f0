"""Settings that every test shares."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A slow machine is no bug: generated tests are bounded by their number of examples and not by the clock. On a
# failure the blob lets anybody replay the one example.
settings.register_profile(
    "tailrace", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("tailrace")
