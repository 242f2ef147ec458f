"""What the processes that tests start are told."""

from service.settings import Settings


def environment_of(settings: Settings) -> dict[str, str]:
    """The environment variables that give a process these settings, whatever else is in its environment."""
    return {f"BREAKEVEN_{name.upper()}": str(getattr(settings, name)) for name in Settings.model_fields}
