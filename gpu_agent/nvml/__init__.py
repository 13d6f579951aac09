"""GPUs as NVML and the kernel log tell of them, read so that a hung GPU stops nothing else."""
