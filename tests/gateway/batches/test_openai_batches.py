"""OpenAI's own client over a gateway process, a control plane process and its worker: files, batches, kills."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import openai
import pytest

from tests.controlplane.configs.live import Live, live_site
from tests.services import Process, free_port, wait_for

pytestmark = pytest.mark.controlplane

MODEL = "team/batched"
CHAT: Final = "/v1/chat/completions"
WAIT_SECONDS = 40


class Site(NamedTuple):
    live: Live
    client: openai.OpenAI
    launch: Callable[[str], Process]
    gateways: dict[str, Process]
    start_worker: Callable[[], Process]
    workers: list[Process]


def request_line(custom_id: str, max_tokens: int = 4, **changes: Any) -> str:
    body = {"model": MODEL, "messages": [{"role": "user", "content": custom_id}], "max_tokens": max_tokens}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body, **changes}) + "\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("batches")
    engine_port, port = free_port(), free_port()
    engine = [sys.executable, "-m", "simulator.engine", "--port", str(engine_port), "--model", MODEL]
    with (
        live_site(folder, HEADWORKS_BATCH_LEASE_SECONDS="2") as live,
        Process([*engine, "--speed", "20"], log=folder / "engine.log") as engine_process,
    ):
        engine_process.wait_for_port(engine_port)
        rows = {
            "/models": {"name": MODEL, "max_context_tokens": 4096, "max_tokens": 1024},
            "/pools": {"name": "chat", "model": MODEL},
            "/engines": {
                "name": "e-1", "pool": "chat", "kind": "vllm", "url": f"http://127.0.0.1:{engine_port}",
                "served_model": MODEL,
            },
            "/routes": {"name": "all", "order": 1, "match": {}, "pools": {"chat": 1000}},
            "/priority-classes": {"name": "batch", "rank": 90},
            "/tenants": {"name": "acme"},
        }  # fmt: skip
        for path, row in rows.items():
            live.rest.post(path, row)
        key = live.rest.post("/tenants/acme/keys", {"label": "k"})["secret"]
        gateways: dict[str, Process] = {}
        workers: list[Process] = []

        def launch(name: str) -> Process:
            join = folder / f"join-{name}"
            if not join.exists():
                join.write_text(live.rest.post("/targets/join-tokens", {"kind": "gateway", "name": name})["secret"])
            own_port = port if name == "gw" else free_port()
            argv = [
                sys.executable, "-m", "gateway.cli", "--control-url", live.address, "--join-token-file", str(join),
                "--name", name, "--state-dir", str(folder / name), "--port", str(own_port),
            ]  # fmt: skip
            quick = {"HEADWORKS_GATEWAY_BATCH_POLL_SECONDS": "0.1", "HEADWORKS_GATEWAY_PUSH_INTERVAL_SECONDS": "0.5"}
            gateways[name] = Process(argv, log=folder / f"{name}.log", environment=quick)
            gateways[name].wait_for_http(f"http://127.0.0.1:{own_port}/readyz")
            return gateways[name]

        def start_worker() -> Process:
            argv = [sys.executable, "-m", "controlplane.cli", "worker"]
            workers.append(Process(argv, log=folder / f"worker-{len(workers)}.log", environment=live.environment))
            return workers[-1]

        try:
            start_worker()
            launch("gw")
            client = openai.OpenAI(api_key=key, base_url=f"http://127.0.0.1:{port}/v1", max_retries=0)
            wait_for(lambda: _is_known(client), 20, "the key to be known at the gateway")
            yield Site(live, client, launch, gateways, start_worker, workers)
        finally:
            for process in (*gateways.values(), *workers):
                process.stop()


def _is_known(client: openai.OpenAI) -> bool:
    try:
        return any(model.id == MODEL for model in client.models.list())
    except openai.APIError:
        return False


def begin(site: Site, text: str) -> Any:
    file = site.client.files.create(file=("in.jsonl", text.encode()), purpose="batch")
    return site.client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")


def ended(client: openai.OpenAI, batch_id: str, status: str = "completed") -> Any:
    wait_for(lambda: client.batches.retrieve(batch_id).status == status, WAIT_SECONDS, f"{batch_id} to be {status}")
    return client.batches.retrieve(batch_id)


def lines_of(client: openai.OpenAI, file_id: str) -> list[dict[str, Any]]:
    return [json.loads(text) for text in client.files.content(file_id).text.splitlines()]


def test_a_batch_runs_from_upload_to_output_and_a_broken_line_fails_alone(site: Site) -> None:
    site.live.rest.post("/tenants", {"name": "charged"})
    made = site.live.rest.call("POST", "/tenants/charged/keys", {"label": "k"}, wait="applied", timeout=10)
    client = site.client.with_options(api_key=made["secret"])
    bad = request_line("c").replace('"max_tokens": 4', '"max_tokens": "four"')
    file = client.files.create(file=("in.jsonl", (request_line("a") + "{broken\n" + bad).encode()), purpose="batch")
    assert (file.purpose, file.filename, file.object) == ("batch", "in.jsonl", "file")
    batch = client.batches.create(
        input_file_id=file.id, endpoint=CHAT, completion_window="24h", metadata={"run": "nightly"}
    )
    assert (batch.object, batch.input_file_id, batch.metadata) == ("batch", file.id, {"run": "nightly"})
    batch = ended(client, batch.id)
    assert batch.request_counts.to_dict() == {"total": 3, "completed": 1, "failed": 2}
    (good,) = lines_of(client, batch.output_file_id)
    assert good["custom_id"] == "a"
    assert good["response"]["body"]["choices"][0]["message"]["content"]
    broken, refused = lines_of(client, batch.error_file_id)
    assert broken["error"]["code"] == "invalid_json_line"
    assert (refused["custom_id"], refused["response"]["status_code"]) == ("c", 400)
    assert refused["response"]["body"]["error"]["code"] == "bad_field"
    assert batch.id in [each.id for each in client.batches.list(limit=1)]
    assert {each.purpose for each in client.files.list()} == {"batch", "batch_output"}
    assert client.files.retrieve(batch.output_file_id).purpose == "batch_output"
    assert client.files.delete(batch.output_file_id).deleted
    with pytest.raises(openai.NotFoundError) as gone:
        client.files.retrieve(batch.output_file_id)
    assert gone.value.code == "file_not_found"
    with pytest.raises(openai.ConflictError) as ended_before:
        client.batches.cancel(batch.id)
    assert ended_before.value.code == "batch_ended"
    # Charged as any other request.
    charged = 'sum(headworks_gateway_generation_tokens_total{tenant="charged", priority_class="batch"})'
    wait_for(lambda: [float(row["value"][1]) for row in site.live.rest.query(charged)] == [4.0], 20, "its tokens")


@pytest.mark.parametrize(
    ("act", "error", "code"),
    [
        (lambda c: c.batches.retrieve("batch_none"), openai.NotFoundError, "batch_not_found"),
        (lambda c: c.files.content("file-none"), openai.NotFoundError, "file_not_found"),
        (lambda c: c.files.create(file=b"x", purpose="assistants"), openai.BadRequestError, "bad_upload"),
        (
            lambda c: c.batches.create(input_file_id="file-none", endpoint=CHAT, completion_window="24h"),
            openai.NotFoundError,
            "file_not_found",
        ),
        (
            lambda c: c.batches.create(input_file_id="f", endpoint="/v1/moderations", completion_window="24h"),
            openai.BadRequestError,
            "bad_batch",
        ),
        (lambda c: c.with_options(api_key="hw-none").files.list(), openai.AuthenticationError, "unknown_key"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(site: Site, act: Any, error: type[Exception], code: str) -> None:
    with pytest.raises(error) as refused:
        act(site.client)
    assert isinstance(refused.value, openai.APIStatusError)
    assert refused.value.code == code


def test_kills_lose_and_double_no_line(site: Site) -> None:
    """The gateway, the worker and the web process are each killed while lines run."""
    names = [f"l{number}" for number in range(120)]
    batch = begin(site, "".join(request_line(name, max_tokens=200) for name in names))

    def completed() -> int:
        return int(site.live.rest.get(f"/batches/{batch.id}")["request_counts"]["completed"])

    wait_for(lambda: completed() >= 5, WAIT_SECONDS, "some lines to be done")
    site.gateways["gw"].kill()
    site.workers[-1].kill()
    before = completed()
    assert before < len(names)
    site.launch("gw")
    site.start_worker()
    wait_for(lambda: completed() > before, WAIT_SECONDS, "further lines to be done")
    site.live.kill()
    site.live.start()
    batch = ended(site.client, batch.id)
    assert batch.request_counts.to_dict() == {"total": len(names), "completed": len(names), "failed": 0}
    assert [each["custom_id"] for each in lines_of(site.client, batch.output_file_id)] == names


def test_a_cancelled_batch_has_what_was_done(site: Site) -> None:
    batch = begin(site, "".join(request_line(f"c{number}", max_tokens=400) for number in range(400)))
    wait_for(
        lambda: site.live.rest.get(f"/batches/{batch.id}")["request_counts"]["completed"], WAIT_SECONDS, "one line"
    )
    assert site.client.batches.cancel(batch.id).status == "cancelling"
    batch = ended(site.client, batch.id, "cancelled")
    counts = batch.request_counts
    assert counts.completed
    assert counts.failed
    assert counts.completed + counts.failed == 400
    assert len(lines_of(site.client, batch.output_file_id)) == counts.completed
    assert {each["error"]["code"] for each in lines_of(site.client, batch.error_file_id)} == {"batch_cancelled"}


def test_without_the_control_plane_calls_are_refused_and_what_came_of_lines_is_kept(site: Site) -> None:
    batch = begin(site, "".join(request_line(f"k{number}", max_tokens=300) for number in range(40)))
    wait_for(
        lambda: site.live.rest.get(f"/batches/{batch.id}")["request_counts"]["total"] == 40, WAIT_SECONDS, "its lines"
    )
    site.live.kill()
    with pytest.raises(openai.InternalServerError) as away:
        site.client.batches.list()
    assert (away.value.status_code, away.value.code) == (503, "batches_unavailable")
    site.live.start()
    assert ended(site.client, batch.id).request_counts.completed == 40
