"""Reset a GPU, and reboot the node, by the site's own commands.

A reset needs everybody to let go of the GPU: the agent closes NVML for it, engines must have been stopped before. A
reboot ends the agent itself, and is known to be done by the boot id, which is another one then.
"""

from __future__ import annotations

import asyncio

from gpu_agent.acts.outcome import failed
from gpu_agent.acts.serving import command_problem
from gpu_agent.acts.tools import NodeWork
from gpu_agent.nvml.release import NotReleased
from wire.acts import Reboot, ResetGpu

_GPU = "{gpu}"
_BEGUN = "boot_id"


async def reset_gpu(work: NodeWork, request: ResetGpu) -> str:
    """Raises: NotDone. One that the agent's end interrupted is not repeated: how it went the GPU tells."""
    if _BEGUN in work.kept:
        await work.tools.gpus.take_up()
        raise failed("interrupted", "the agent ended while the command ran; look at the GPU, and ask again if need be")
    await work.keep({_BEGUN: _boot_id(work)})
    try:
        await work.tools.gpus.release(request.limit_seconds)
    except NotReleased as error:
        raise failed("gpus_in_use", str(error)) from error
    try:
        command = [word.replace(_GPU, request.gpu) for word in work.policy.reset_command]
        if problem := await command_problem(command, request.limit_seconds, "the reset command"):
            raise problem
    finally:
        await work.tools.gpus.take_up()
    return f"the reset command for {request.gpu} ended well; NVML is opened again"


async def reboot(work: NodeWork, request: Reboot) -> str:
    """Raises: NotDone. The command is run once; after that only another boot ends it well."""
    now = _boot_id(work)
    if _BEGUN in work.kept:
        if work.kept[_BEGUN] != now:
            return "the node has booted since"
    else:
        await work.keep({_BEGUN: now})
        if problem := await command_problem(work.policy.reboot_command, request.limit_seconds, "the reboot command"):
            raise problem
    # The end comes with the machine's, from here or from the next run of the agent.
    await asyncio.sleep(request.limit_seconds)
    raise failed("did_not_reboot", f"the node still runs {request.limit_seconds} s after the reboot command")


def _boot_id(work: NodeWork) -> str:
    return work.tools.boot_id_file.read_text().strip()
