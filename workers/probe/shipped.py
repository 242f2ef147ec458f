"""The models that ship with Breakeven: ids that any worker resolves to a folder of its own installation."""

from importlib.resources import files

SHIPPED_MODELS = {"breakeven/demo-moe": "model", "breakeven/demo-draft": "draft"}


def resolve_model(model: str) -> str:
    """The folder of a shipped model; any other id or path unchanged."""
    folder = SHIPPED_MODELS.get(model)
    return str(files("workers.demo") / folder) if folder else model
