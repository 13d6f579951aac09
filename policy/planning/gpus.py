"""GPUs that can be planned with by name, and machines of them. Data: vendors' data sheets, memory as NVML tells it.

Peaks are dense: data sheets print twice as much, for matrices half of whose elements are 0.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Link = Literal["nvlink", "pcie"]
_MIB, _GB, _TERA = 2**20, 10**9, 10**12


class Gpu(NamedTuple):
    """One kind. `nvml_names`: beginnings of what drivers call it. `link`: how its peers in a usual machine are reached,
    at `link_bytes_per_second`. Bandwidth and peak may be None: then nothing is said of its speed.
    """

    name: str
    memory_bytes: int
    bandwidth_bytes_per_second: int | None = None
    bf16_flops: int | None = None
    has_fp8: bool = False
    link: Link = "pcie"
    link_bytes_per_second: int | None = None
    nvml_names: tuple[str, ...] = ()


class Machines(NamedTuple):
    """`nodes` machines that each have `gpus_per_node` of one GPU, and how those reach each other."""

    gpu: Gpu
    gpus_per_node: int
    nodes: int
    link: Link

    @property
    def gpus(self) -> int:
        return self.gpus_per_node * self.nodes


def _gpu(
    name: str,
    mib: int,
    gb_s: int,
    tflops: int,
    *names: str,
    fp8: bool = False,
    nvlink_gb_s: int = 0,
    pcie_gb_s: int = 64,
) -> Gpu:
    link: Link = "nvlink" if nvlink_gb_s else "pcie"
    speed = (nvlink_gb_s or pcie_gb_s) * _GB
    return Gpu(name, mib * _MIB, gb_s * _GB, tflops * _TERA, fp8, link, speed, names)


# The more exact name first, where one begins as another does.
GPUS: tuple[Gpu, ...] = (
    _gpu("B200", 183_359, 8000, 2250, "NVIDIA B200", fp8=True, nvlink_gb_s=1800),
    _gpu("H200", 143_771, 4800, 989, "NVIDIA H200", fp8=True, nvlink_gb_s=900),
    _gpu("H100-SXM", 81_559, 3350, 989, "NVIDIA H100 80GB HBM3", fp8=True, nvlink_gb_s=900),
    _gpu("H100-NVL", 95_830, 3900, 835, "NVIDIA H100 NVL", fp8=True, pcie_gb_s=128),
    _gpu("H100-PCIe", 81_559, 2000, 756, "NVIDIA H100 PCIe", fp8=True, pcie_gb_s=128),
    _gpu("H20", 97_871, 4000, 148, "NVIDIA H20", fp8=True, nvlink_gb_s=900),
    _gpu("A100-80GB-SXM", 81_920, 2039, 312, "NVIDIA A100-SXM4-80GB", nvlink_gb_s=600),
    _gpu("A100-80GB-PCIe", 81_920, 1935, 312, "NVIDIA A100 80GB PCIe"),
    _gpu("A100-40GB-SXM", 40_960, 1555, 312, "NVIDIA A100-SXM4-40GB", nvlink_gb_s=600),
    _gpu("L40S", 46_068, 864, 362, "NVIDIA L40S", fp8=True),
    _gpu("L4", 23_034, 300, 121, "NVIDIA L4", fp8=True),
    _gpu("RTX-6000-Ada", 49_140, 960, 182, "NVIDIA RTX 6000 Ada Generation", fp8=True),
    _gpu("RTX-A6000", 49_140, 768, 155, "NVIDIA RTX A6000"),
    _gpu("A10", 23_028, 600, 125, "NVIDIA A10"),
    _gpu("RTX-5090", 32_607, 1792, 209, "NVIDIA GeForce RTX 5090", fp8=True, pcie_gb_s=128),
    _gpu("RTX-4090", 24_564, 1008, 165, "NVIDIA GeForce RTX 4090", fp8=True),
    _gpu("RTX-3090", 24_576, 936, 71, "NVIDIA GeForce RTX 3090"),
    _gpu("T4", 15_360, 320, 65, "Tesla T4", pcie_gb_s=32),
)
GPU_BY_NAME = {gpu.name: gpu for gpu in GPUS}


def called(nvml_name: str, memory_bytes: int | None) -> Gpu | None:
    """The GPU that a driver calls so, with the memory that it has; None where neither is known.

    One that is not in the table has no speed here.
    """
    known = next((gpu for gpu in GPUS if any(_is(nvml_name, name) for name in gpu.nvml_names)), None)
    if known is not None:
        return known if memory_bytes is None else known._replace(memory_bytes=memory_bytes)
    return None if memory_bytes is None else Gpu(nvml_name, memory_bytes)


def _is(told: str, name: str) -> bool:
    # "NVIDIA L4" is no L40S, "NVIDIA H20" no H200.
    return told == name or told.startswith(f"{name} ")
