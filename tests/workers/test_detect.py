"""Hardware labels from what vendors' tools say."""

import stat
from pathlib import Path

import pytest

from workers.detect import (
    Accelerator,
    MixedAcceleratorsError,
    amd_accelerators,
    device_ids,
    hardware_label,
    label,
    short_name,
    visible,
)


@pytest.mark.parametrize(
    ("product", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H100 NVL", "H100-NVL"),
        ("NVIDIA H200", "H200-SXM"),
        ("NVIDIA H20", "H20"),
        ("NVIDIA B200", "B200-SXM"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM-80GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100-PCIe-40GB"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("AMD Instinct MI300X", "MI300X"),
        ("AMD Instinct MI300X OAM", "MI300X"),
    ],
)
def test_a_products_name_becomes_the_one_people_use(product: str, name: str) -> None:
    assert short_name(product) == name


def test_a_label_counts_accelerators_of_one_kind() -> None:
    assert label(["NVIDIA H100 80GB HBM3"] * 4) == "4xH100-SXM"
    with pytest.raises(
        MixedAcceleratorsError, match=r"several kinds \(H100-SXM, L4\): choose one kind with CUDA_VISIBLE_DEVICES"
    ):
        label(["NVIDIA H100 80GB HBM3", "NVIDIA L4"])


def test_visible_devices_are_honoured_by_index_and_by_uuid() -> None:
    a, b, c = found = [Accelerator("a", "GPU-11"), Accelerator("b", "GPU-22"), Accelerator("c", "GPU-33")]
    assert visible(found, None) == [a, b, c]
    assert visible(found, "2,0") == [c, a]
    assert visible(found, "GPU-2") == [b]
    assert visible(found, "0,9,1") == [a]
    assert visible(found, "") == []


def test_devices_that_no_tool_tells_of_are_those_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert device_ids("1xThing", tmp_path) == ["all"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1, 2")
    assert device_ids("1xThing", tmp_path) == ["1", "2"]


def test_a_worker_on_a_cpu_is_told_from_others_by_its_home(tmp_path: Path) -> None:
    one, other = device_ids("cpu", tmp_path / "one"), device_ids("cpu", tmp_path / "other")
    assert one != other
    assert one == device_ids("cpu", tmp_path / "other" / ".." / "one")


def test_amds_tool_is_asked_where_it_is_present(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "amd-smi"
    tool.write_text("""#!/bin/sh\necho '[{"gpu": 0, "asic": {"market_name": "AMD Instinct MI300X"}}]'\n""")
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert amd_accelerators() == [Accelerator("AMD Instinct MI300X", "AMD-0")]
    assert hardware_label() == "1xMI300X"
    tool.write_text("#!/bin/sh\necho broken\n")
    assert hardware_label() == "cpu"
