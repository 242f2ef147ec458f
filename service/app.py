"""The HTTP application: its parts put together. Measures nothing and imports no engine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from service import __version__, database_trouble, problems
from service.body_limit import BodyLimit
from service.database import open_engine
from service.documents import Problem
from service.examples import EXAMPLES
from service.queue import ProbeQueue
from service.routes import advice, hardware, health, probes
from service.routes.dependencies import Service
from service.settings import Settings
from service.worker_process import WorkerProcess

DESCRIPTION = """
At each batch size: should speculative decoding be on, with which drafter and how many draft tokens, how much faster
is it, how sure are we, and why? `POST /v1/probes` measures it on your model and your hardware,
`GET /v1/probes/{id}/advice` answers.

Every error is an RFC 9457 problem document.
"""


class Application(FastAPI):
    """FastAPI, with an OpenAPI document that shows our problem documents, and examples with the nulls in them."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            schemas = super().openapi()["components"]["schemas"]
            schemas["Problem"] = Problem.model_json_schema()
            for name, of_model in EXAMPLES.items():
                schemas[name]["examples"] = of_model
        return super().openapi()


def create_app(settings: Settings, own_worker: WorkerProcess | None = None) -> FastAPI:
    """The application on the database of these settings, which `service.database.migrate` has brought up to date.

    `own_worker` is the one that its process keeps: a request that nobody else can measure waits while it starts.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine = open_engine(settings)
        queue = ProbeQueue(engine)
        app.state.service = Service(settings, engine, queue, own_worker)
        yield
        queue.close()
        engine.dispose()

    app = Application(title="Breakeven", description=DESCRIPTION, version=__version__, lifespan=lifespan)
    problems.install(app)
    database_trouble.install(app)
    app.add_middleware(BodyLimit)
    for module in (probes, advice, hardware, health):
        app.include_router(module.router)
    return app
