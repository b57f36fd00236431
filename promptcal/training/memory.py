"""How much memory the work has taken."""

import resource
import sys

import torch


def peak_memory_mb(device: torch.device) -> float:
    """The most memory so far, in MB (10⁶ bytes): allocated on a GPU, else the resident set of the whole process."""
    if device.type == "cuda":
        return round(torch.cuda.max_memory_allocated(device) / 1e6, 1)
    unit = 1 if sys.platform == "darwin" else 1024  # the kernels count in bytes and in KiB
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)
