"""Settings that every test shares."""

from hypothesis import HealthCheck, settings

# Compiling and disk make single examples slow; what is checked is never the time.
settings.register_profile("uqlob", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
settings.load_profile("uqlob")
