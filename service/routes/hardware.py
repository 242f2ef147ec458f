"""/v1/hardware: where probes can run."""

from fastapi import APIRouter

from service.documents import HardwareList
from service.hardware import hardware_in_use
from service.routes.dependencies import TheService, Transaction

router = APIRouter(prefix="/v1/hardware", tags=["hardware"])


@router.get("")
def read(service: TheService, session: Transaction) -> HardwareList:
    """Every hardware label with a live worker or a probe that has not ended."""
    return HardwareList(hardware=hardware_in_use(session, service.settings.dead_seconds))
