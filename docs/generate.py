"""What is made from the code: pages of docs/ and files of deploy/. `python -m docs.generate` (`make docs`) writes it.

A test compares each with what this would write.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path

import django
import yaml

from controlplane.alerts import runbooks
from controlplane.core.yaml_text import write_yaml
from controlplane.telemetry.recording.builtin import builtin
from dashboards import grafana
from docs.charts_page import charts_page
from gateway.refusals import docs_table
from wire.settings import Setting

DOCS = Path(__file__).resolve().parent
DEPLOY = DOCS.parent / "deploy"
# The alert rules that are there from the start; what they are, docs/rules.md says.
PACK = DOCS.parent / "controlplane/alerts/pack"

SETTINGS_MODULES = {
    "controlplane.settings_rows": "Control plane",
    "controlplane.core.oidc_rows": "Control plane: log-in by an OpenID Connect provider",
    "controlplane.telemetry.settings_rows": "Control plane: metrics, decisions, recorded series",
    "controlplane.batches.settings_rows": "Control plane: batches and their files",
    "gateway.settings": "Gateway",
    "gpu_agent.settings": "Agent on a GPU node",
    "gpu_agent.merged.settings": "Merged page of Triton and vLLM",
    "adapters.production_stack.settings": "Router of vLLM production-stack",
}

_SETTINGS_HEAD = """\
# Settings

Every process reads its settings from the environment when it starts. An empty variable counts as unset. A value that
cannot be used stops the process with a message that names the setting and says what would be right; a secret's value
is never printed. A secret that is also known as `…_FILE` may stand in the file of that path, and in no environment.
"""


def settings_page() -> str:
    sections = [
        f"## {title}\n\n{_settings_table(import_module(module).SETTINGS)}" for module, title in SETTINGS_MODULES.items()
    ]
    return "\n".join([_SETTINGS_HEAD, *sections])


def _settings_table(settings: Iterable[Setting[object]]) -> str:
    rows = ["| name | default | what it is for |", "|---|---|---|"]
    for setting in settings:
        reason = _cell(f"{setting.reason}{_secrecy(setting)}")
        rows.append(f"| `{setting.name}` | {shown_default(setting.default)} | {reason} |")
    return "\n".join(rows) + "\n"


def _secrecy(setting: Setting[object]) -> str:
    if setting.in_file:
        return f" Secret; also as `{setting.name}_FILE`."
    return " Secret." if setting.secret else ""


def shown_default(value: object) -> str:
    """A default as one would write it into the environment."""
    if value is None or value == "" or value == ():
        return "empty"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        # A host with its port, or a list.
        separator = ":" if isinstance(value[-1], int) else ","
        return f"`{separator.join(str(part) for part in value)}`"
    return f"`{value}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


_REFUSALS_HEAD = """\
# Why a gateway refuses

A refusal has OpenAI's error shape, `{"error": {"message", "type", "code", "param"}}`, or that of the API in which it
was asked ([the API that clients call](openai-api.md#errors)); `code` is one of these reasons.
429: you are over your share. 503: no capacity now. 400: it can never fit. Where trying again can help, `Retry-After`
says after how many seconds; where that is more than a minute, `x-should-retry: false` keeps the official clients from
sleeping so long or coming again at once. Every answer carries `x-request-id`.
"""


def refusals_page() -> str:
    return f"{_REFUSALS_HEAD}\n{docs_table()}"


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "refusals.md": refusals_page,
    "charts.md": charts_page,
    **{f"runbooks/{name}": partial(str, text) for name, text in runbooks.pages().items()},
}


def recording_rules() -> str:
    head = "# The built-in recording rules (docs/recording.md), made by `make docs`.\n"
    return f"{head}{write_yaml(builtin())}"


def alerting_rules() -> str:
    """All of the pack in one file, for a Prometheus that evaluates them."""
    files = sorted(PACK.glob("*.yml"))
    groups = [group for file in files for group in yaml.safe_load(file.read_text()).get("groups", ())]
    head = "# The alert rules of the pack (docs/rules.md), made by `make docs` of controlplane/alerts/pack.\n"
    return f"{head}{write_yaml({'groups': groups})}"


def board(name: str) -> str:
    return json.dumps(grafana.boards()[name], indent=1, ensure_ascii=False) + "\n"


# Beside the pages, by their paths in deploy/.
FILES: dict[str, Callable[[], str]] = {
    "prometheus/recording.yml": recording_rules,
    "prometheus/alerting.yml": alerting_rules,
    **{f"grafana/boards/{layer.name}.json": partial(board, f"{layer.name}.json") for layer in grafana.BOARDS},
}


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
    django.setup()
    for folder, files in ((DOCS, PAGES), (DEPLOY, FILES)):
        for name, render in files.items():
            (folder / name).write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
