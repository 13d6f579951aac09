"""When an engine's processes wait for a processor, and its GPUs for them. Source: seed 1, section 16."""

from __future__ import annotations

# Python's lock lets one thread of a process run at a time: a core is all that it gets.
FULL_CORES = 0.9
# Below this a GPU that decodes waits for something else; above the other it is what everything waits for.
IDLE_GPU, BUSY_GPU = 0.6, 0.85
# Whose processes hold memory of which GPU.
GPUS_OF_ENGINES = 'group by (node, UUID, engine) (headworks_gpu_processes{engine!=""})'
# In per cent, over the GPUs of each engine. One that several engines share counts for each.
GPU_OF_ENGINE = (
    "avg by (engine) (max by (node, UUID) (avg_over_time(DCGM_FI_DEV_GPU_UTIL[$window]))"
    f" * on (node, UUID) group_right () {GPUS_OF_ENGINES})"
)
