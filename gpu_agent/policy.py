"""What this node lets be done to it, and what only it knows of its engines: a file of its own administrator's.

The control plane can ask for what is allowed here and for nothing else. Without a file nothing is allowed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from wire.acts import ACTIONS
from wire.files import read_bounded
from wire.messages import MAX_ENGINES, UNREADABLE
from wire.problems import type_problems
from wire.snapshot import EngineArgument, FolderPath, Name
from wire.snapshot_checks import engine_url_problem

_FILE_LIMIT_BYTES = 1 << 20
# Words that name a secret at the end of an argument: api-key, hf-token.
_SECRET_ENDS = ("-key", "-token", "-password", "-secret")
# A program takes no NUL.
_Word = Annotated[str, Meta(min_length=1, max_length=1000, pattern=r"^[^\x00]+$")]
_Words = Annotated[list[_Word], Meta(max_length=64)]


class EnginePolicy(Struct, frozen=True, forbid_unknown_fields=True):
    """One engine. Everything is absent until it is given; docs/node-policy.md says what each is for.

    Commands are run as they are, without a shell. `config_file` is the YAML that vLLM's `--config` names.
    """

    allow: list[str] = []
    restart_command: _Words = []
    start_command: _Words = []
    stop_command: _Words = []
    config_file: FolderPath | None = None
    arguments: list[EngineArgument] = []
    lora_folder: FolderPath | None = None
    api_key_file: FolderPath | None = None
    url: Annotated[str, Meta(max_length=300)] | None = None
    metrics_url: Annotated[str, Meta(pattern=r"^https?://[^\s@?#]+$(?!\n)", max_length=300)] | None = None
    model_path: FolderPath | None = None
    log_file: FolderPath | None = None


class NodePolicy(Struct, frozen=True, forbid_unknown_fields=True):
    """`allow`: the actions on the node itself. `engines`: by the names that the control plane knows them by.

    `fetch_command`: the site's own program that fetches a model's files into a folder below one of `model_folders`.
    `reset_command` resets the GPU whose UUID stands for `{gpu}` in it.
    """

    allow: list[str] = []
    fetch_command: _Words = []
    reset_command: _Words = []
    reboot_command: _Words = []
    model_folders: Annotated[list[FolderPath], Meta(max_length=32)] = []
    engines: Annotated[dict[Name, EnginePolicy], Meta(max_length=MAX_ENGINES)] = {}

    @property
    def allowed_acts(self) -> dict[str, list[str]]:
        """What may be done, by engine; under "" what may be done to the node. Who may do nothing is left out."""
        all_allowed = {"": self.allow, **{name: engine.allow for name, engine in self.engines.items()}}
        return {name: allowed for name, allowed in all_allowed.items() if allowed}

    def engine(self, name: str) -> EnginePolicy:
        return self.engines.get(name, _NOTHING)


_NOTHING = EnginePolicy()


class BadPolicy(ValueError):
    """The file cannot be used; the message says why."""


def load_policy(file: str) -> NodePolicy:
    """The policy of a JSON file; one that allows nothing where `file` is empty. Raises: BadPolicy."""
    if not file:
        return NodePolicy()
    try:
        document = msgspec.json.decode(read_bounded(Path(file), _FILE_LIMIT_BYTES))
    except (OSError, ValueError, *UNREADABLE) as error:
        raise BadPolicy(f"the policy in {file} cannot be used: {error}") from error
    if problems := type_problems(document, NodePolicy):
        wrong = "; ".join(f"{problem.path}: {problem.message}" for problem in problems)
        raise BadPolicy(f"the policy in {file}: {wrong}")
    policy = msgspec.convert(document, NodePolicy)
    _check(policy, file)
    return policy


def _check(policy: NodePolicy, file: str) -> None:
    for place, allowed, of_engine in (
        ("/allow", policy.allow, False),
        *((f"/engines/{name}/allow", engine.allow, True) for name, engine in policy.engines.items()),
    ):
        known = sorted(name for name, action in ACTIONS.items() if bool(action.kinds) == of_engine)
        for action in allowed:
            if action not in known:
                raise BadPolicy(f"the policy in {file}: {place}: {action!r} is none of {', '.join(known)}")
    if wrong := _node_problem(policy):
        raise BadPolicy(f"the policy in {file}: {wrong}")
    for name, engine in policy.engines.items():
        if wrong := _engine_problem(engine):
            raise BadPolicy(f"the policy in {file}: /engines/{name}{wrong}")


def _node_problem(policy: NodePolicy) -> str | None:
    for action, name, command in (
        ("fetch_model", "fetch_command", policy.fetch_command),
        ("reset_gpu", "reset_command", policy.reset_command),
        ("reboot", "reboot_command", policy.reboot_command),
    ):
        if action in policy.allow and not command:
            return f"/allow: {action} is allowed and needs a {name}"
    if "reset_gpu" in policy.allow and not any("{gpu}" in word for word in policy.reset_command):
        return "/reset_command: it resets whatever it likes; say where the GPU's UUID goes, as {gpu}"
    for action in ("fetch_model", "check_model"):
        if action in policy.allow and not policy.model_folders:
            return f"/allow: {action} is allowed and needs model_folders"
    return None


def _engine_problem(engine: EnginePolicy) -> str | None:
    """Where it contradicts itself, and how."""
    if engine.url is not None and (wrong := engine_url_problem(engine.url)):
        return f"/url: {wrong}"
    for action, command in (
        ("restart", engine.restart_command),
        ("start", engine.start_command),
        ("stop", engine.stop_command),
    ):
        if action in engine.allow and not command:
            return f": {action} is allowed and needs a {action}_command"
    if engine.arguments and engine.config_file is None:
        return "/arguments: they are changed in a config_file; name it"
    if engine.config_file is not None and not engine.config_file.endswith((".yaml", ".yml")):
        return "/config_file: vLLM reads a .yaml or .yml file alone"
    for argument in engine.arguments:
        if argument.endswith(_SECRET_ENDS):
            return f"/arguments: {argument} is a secret, which a configuration that is sent around must not hold"
    if "load_lora" in engine.allow and engine.lora_folder is None:
        return ": load_lora is allowed and needs a lora_folder"
    return None
