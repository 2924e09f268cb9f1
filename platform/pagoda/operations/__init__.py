"""Running an installation: start and supervision, demo accounts, health, metrics, and a check-up."""
