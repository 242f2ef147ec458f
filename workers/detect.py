"""The hardware label of this machine: `cpu`, or how many of which accelerator, as `1xH100-SXM`."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence

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


class MixedAcceleratorsError(Exception):
    """This machine has accelerators of several kinds, and none of them was chosen."""


def hardware_label() -> str:
    """The label of the accelerators that this process may use; `cpu` if there are none."""
    names = nvidia_names() or amd_names()
    return label(names) if names else "cpu"


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


def nvidia_names() -> list[str]:
    """Product names of the NVIDIA GPUs that this process may use, by NVML; none where there is no driver."""
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
        names = [_text(pynvml.nvmlDeviceGetName(handle)) for handle in handles]
        uuids = [_text(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    finally:
        pynvml.nvmlShutdown()
    return visible(names, uuids, os.environ.get("CUDA_VISIBLE_DEVICES"))


def amd_names() -> list[str]:
    """Product names of the AMD accelerators that this process may use, by `amd-smi` or `rocm-smi`."""
    names = _amd_smi_names() or _rocm_smi_names()
    chosen = os.environ.get("HIP_VISIBLE_DEVICES", os.environ.get("ROCR_VISIBLE_DEVICES"))
    return visible(names, [], chosen)


def visible(names: Sequence[str], uuids: Sequence[str], chosen: str | None) -> list[str]:
    """The names that a `..._VISIBLE_DEVICES` variable leaves: indices or UUIDs, up to the first that is neither."""
    if chosen is None:
        return list(names)
    left = []
    for entry in (part.strip() for part in chosen.split(",")):
        by_uuid = [i for i, uuid in enumerate(uuids) if entry and uuid.startswith(entry)]
        if entry.isdigit() and int(entry) < len(names):
            left.append(names[int(entry)])
        elif len(by_uuid) == 1:
            left.append(names[by_uuid[0]])
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
