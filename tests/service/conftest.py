"""The service as a client sees it, and rows as a worker would have written them."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.settings import Settings


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    """The real application on a real, migrated database."""
    with TestClient(create_app(settings)) as client:
        yield client
