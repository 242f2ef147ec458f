"""The accelerators of this machine that this process may use, and their label: `cpu`, or such as `1xH100-SXM`."""

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from service.exit_codes import CommandError

# What vendors' tools call a product -> what people call it, first match wins.
PRODUCT_NAMES: Sequence[tuple[str, str]] = (
    (r"H100 80GB HBM3|H100 SXM", "H100-SXM"),
    (r"H100 NVL", "H100-NVL"),
    (r"H100 PCIe", "H100-PCIe"),
    (r"H200 NVL", "H200-NVL"),
    (r"H200", "H200-SXM"),
    (r"\bH20\b", "H20"),
    (r"GB(\d+)", r"GB\1"),
    (r"B(\d00)\b", r"B\1-SXM"),
    (r"A100-SXM\d?-(\d+)GB", r"A100-SXM-\1GB"),
    (r"A100 (\d+)GB PCIe|A100-PCIE-(\d+)GB", r"A100-PCIe-\1\2GB"),
    (r"(MI\d{3}[A-Z]*)", r"\1"),
)
TOOL_TIMEOUT_SECONDS = 20


VISIBLE_DEVICES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


class MixedAcceleratorsError(CommandError):
    """This machine has accelerators of several kinds, and none of them was chosen."""


@dataclass(frozen=True)
class Accelerator:
    """A device by its product's name, and by an id that no other on this host has, whatever is visible."""

    product: str
    id: str


def hardware_label() -> str:
    """The label of the accelerators that this process may use; `cpu` if there are none."""
    found = accelerators()
    return label([each.product for each in found]) if found else "cpu"


def accelerators() -> list[Accelerator]:
    """The accelerators that this process may use."""
    return nvidia_accelerators() or amd_accelerators()


def device_ids(hardware: str, home: Path) -> list[str]:
    """The ids of the accelerators that a worker of this label uses.

    GPUs belong to the host: where no tool tells of them, those that a `..._VISIBLE_DEVICES` variable names, else `all`.
    A CPU is shared by all who run on it: there the id stands for BREAKEVEN_HOME.
    """
    if hardware == "cpu":
        return [f"home-{hashlib.sha256(str(home.resolve()).encode()).hexdigest()[:8]}"]
    if found := accelerators():
        return [each.id for each in found]
    named = next((os.environ[name] for name in VISIBLE_DEVICES if os.environ.get(name)), "all")
    return [part.strip() for part in named.split(",")]


def label(names: Sequence[str]) -> str:
    """The label of accelerators by their products' names. Raises MixedAcceleratorsError."""
    kinds = sorted({short_name(name) for name in names})
    if len(kinds) > 1:
        raise MixedAcceleratorsError(
            f"this machine has accelerators of several kinds ({', '.join(kinds)}): choose one kind with "
            "CUDA_VISIBLE_DEVICES or HIP_VISIBLE_DEVICES, or name the label with --hardware"
        )
    return f"{len(names)}x{kinds[0]}"


def short_name(product: str) -> str:
    """`NVIDIA H100 80GB HBM3` -> `H100-SXM`; a product that is not in the list keeps its name, without the vendor."""
    for pattern, name in PRODUCT_NAMES:
        if match := re.search(pattern, product):
            return match.expand(name)
    bare = re.sub(r"\b(NVIDIA|AMD|Instinct|Radeon|GeForce|Generation)\b", "", product)
    return re.sub(r"[^A-Za-z0-9.]+", "-", bare).strip("-")


def nvidia_accelerators() -> list[Accelerator]:
    """The NVIDIA GPUs that this process may use, by NVML; none where there is no driver."""
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        found = [
            Accelerator(_text(pynvml.nvmlDeviceGetName(each)), _text(pynvml.nvmlDeviceGetUUID(each)))
            for each in handles
        ]
    finally:
        pynvml.nvmlShutdown()
    return visible(found, os.environ.get("CUDA_VISIBLE_DEVICES"))


def amd_accelerators() -> list[Accelerator]:
    """The AMD accelerators that this process may use, by `amd-smi` or `rocm-smi`; their ids are their indices."""
    names = _amd_smi_names() or _rocm_smi_names()
    chosen = os.environ.get("HIP_VISIBLE_DEVICES", os.environ.get("ROCR_VISIBLE_DEVICES"))
    return visible([Accelerator(name, f"AMD-{index}") for index, name in enumerate(names)], chosen)


def visible(found: Sequence[Accelerator], chosen: str | None) -> list[Accelerator]:
    """Those that a `..._VISIBLE_DEVICES` variable leaves: by index or id, up to the first entry that is neither."""
    if chosen is None:
        return list(found)
    left = []
    for entry in (part.strip() for part in chosen.split(",")):
        by_id = [each for each in found if entry and each.id.startswith(entry)]
        if entry.isdigit() and int(entry) < len(found):
            left.append(found[int(entry)])
        elif len(by_id) == 1:
            left.append(by_id[0])
        else:
            break
    return left


def _amd_smi_names() -> list[str]:
    printed = _json_of("amd-smi", "static", "--asic", "--json")
    cards = printed.get("gpu_data", []) if isinstance(printed, dict) else printed
    return [card["asic"]["market_name"] for card in cards if "asic" in card] if isinstance(cards, list) else []


def _rocm_smi_names() -> list[str]:
    cards = _json_of("rocm-smi", "--showproductname", "--json")
    if not isinstance(cards, dict):
        return []
    return [card.get("Card Series") or card.get("Card series") or "AMD" for _, card in sorted(cards.items())]


def _json_of(tool: str, *arguments: str) -> object:
    """What a vendor's tool prints as JSON; None where it is absent, fails or prints something else."""
    if shutil.which(tool) is None:
        return None
    try:
        output = subprocess.run(
            [tool, *arguments], capture_output=True, check=True, timeout=TOOL_TIMEOUT_SECONDS, text=True
        ).stdout
        parsed: object = json.loads(output)
    except (subprocess.SubprocessError, json.JSONDecodeError):
        return None
    return parsed


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
