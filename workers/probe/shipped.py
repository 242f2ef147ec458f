"""The models that ship with Breakeven: ids that any worker resolves to a folder of its own installation."""

from importlib.resources import files

from service.demo import DEMO_DRAFT_MODEL, DEMO_MODEL

SHIPPED_MODELS = {DEMO_MODEL: "model", DEMO_DRAFT_MODEL: "draft"}


def resolve_model(model: str) -> str:
    """The folder of a shipped model; any other id or path unchanged."""
    folder = SHIPPED_MODELS.get(model)
    return str(files("workers.demo") / folder) if folder else model
