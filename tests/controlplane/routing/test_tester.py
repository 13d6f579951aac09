from __future__ import annotations

from typing import get_args

import pytest

from controlplane.routing.asked import Path
from controlplane.routing.tester import TRIED_MAX
from policy.asks import ENDPOINTS

REQUEST = {
    "model": "org/llama",
    "tenant": "acme",
    "priority_class": "chat",
    "prompt_tokens": 10,
    "max_tokens": 10,
}


@pytest.fixture
def rules(pools):
    made = [
        pools.post("/routes", {"name": "banned", "order": 1, "match": {"tenants": []}, "reject": "banned"}),
        pools.post(
            "/routes", {"name": "large", "order": 2, "match": {"min_prompt_tokens": 1024}, "pools": {"long": 1000}}
        ),
        pools.post(
            "/routes",
            {
                "name": "rest",
                "order": 3,
                "match": {"max_max_tokens": 500},
                "pools": {"short": 900, "long": 100},
                "fallbacks": {"long": 1},
            },
        ),
        pools.post("/routes", {"name": "huge", "order": 4, "match": {"min_max_tokens": 4000}, "reject": "too long"}),
    ]
    assert {answer.status_code for answer in made} == {201}


@pytest.mark.usefixtures("rules")
def test_it_tells_each_rule_tried_and_the_pools_of_the_match(viewer):
    answer = viewer.post("/routes/test", REQUEST).json()
    assert (answer["reason"], answer["rule"]) == ("matched", "rest")
    assert answer["pools"] == {"short": 900, "long": 100}
    assert answer["fallbacks"] == ["long"]
    assert [tried["rule"] for tried in answer["tried"]] == ["banned", "large", "rest"]
    assert "acme" in answer["tried"][0]["mismatch"]
    assert "1024" in answer["tried"][1]["mismatch"]
    assert answer["tried"][2]["mismatch"] is None


@pytest.mark.usefixtures("rules")
def test_it_tells_a_refusal_and_its_message(viewer):
    answer = viewer.post("/routes/test", {**REQUEST, "max_tokens": 4000}).json()
    assert (answer["reason"], answer["rule"], answer["message"]) == ("rejected", "huge", "too long")
    assert answer["pools"] == {}


@pytest.mark.usefixtures("rules")
def test_it_tells_that_no_rule_matches(viewer):
    answer = viewer.post("/routes/test", {**REQUEST, "max_tokens": 1000}).json()
    assert (answer["reason"], answer["rule"]) == ("no_route", None)
    assert len(answer["tried"]) == 4


def test_of_many_rules_the_first_and_the_matching_one_are_told_and_how_many_are_not(viewer, pools):
    others = {f"r-{number:03}": {"match": {"tenants": []}, "pools": {"short": 1000}} for number in range(TRIED_MAX)}
    last = {"z": {"pools": {"long": 1000}}}
    for routes, rule in ((others | last, "z"), (others, None)):
        answer = viewer.post("/routes/test", {**REQUEST, "routes": routes}).json()
        assert answer["rule"] == rule
        assert len(answer["tried"]) == TRIED_MAX
        assert answer["tried"][0]["rule"] == "r-000"
        assert answer["tried_left_out"] == len(routes) - TRIED_MAX
        assert (answer["tried"][-1]["mismatch"] is None) == (rule is not None)


def test_a_request_described_wrongly_is_refused(viewer):
    answer = viewer.post("/routes/test", {**REQUEST, "prompt_tokens": -1, "tenant": None})
    assert {problem["path"] for problem in answer.json()["problems"]} == {"/prompt_tokens", "/tenant"}


def sent(**fields):
    body = {"model": "org/llama", "messages": [{"role": "user", "content": "x" * 4000}], "max_tokens": 9999}
    return {"request": {"tenant": "acme", "body": {**body, **fields.pop("body", {})}, **fields}}


@pytest.mark.usefixtures("rules")
def test_a_whole_request_is_read_measured_and_bounded_as_gateways_do(viewer):
    answer = viewer.post("/routes/test", sent(headers={"X-Priority-Class": "chat"}, body={"n": 3})).json()
    assert answer["request"] == {
        "model": "org/llama",
        "asked_model": "org/llama",
        "tenant": "acme",
        "priority_class": "chat",
        # 4000 bytes and a role of 4 at 4 a token, and 4 tokens for the message.
        "prompt_tokens": 1005,
        "prompt_tokens_source": "estimate",
        "max_tokens": 9999,
        "sequences": 3,
    }
    assert answer["max_tokens"] == {"asked": 9999, "given": 4096, "note": "clamped"}
    assert (answer["reason"], answer["rule"]) == ("rejected", "huge")


@pytest.mark.usefixtures("rules")
@pytest.mark.parametrize(
    ("path", "body", "prompt_tokens", "bound"),
    [
        ("/v1/completions", {"prompt": ["1234", "12345678"], "max_tokens": 5}, 3, {"asked": 5, "given": 5}),
        ("/v1/responses", {"input": "12345678", "max_output_tokens": 5}, 6, {"asked": 5, "given": 5}),
        (
            "/v1/messages",
            {"messages": [{"role": "user", "content": "1234"}], "max_tokens": 5},
            6,
            {"asked": 5, "given": 5},
        ),
        ("/v1/embeddings", {"input": ["1234", "12345678"]}, 3, None),
        ("/v1/rerank", {"query": "1234", "documents": ["1234", "1234"]}, 4, None),
    ],
)
def test_every_api_is_read_as_gateways_do(viewer, path, body, prompt_tokens, bound):
    asked = {"tenant": "acme", "path": path, "body": {"model": "org/llama", **body}}
    answer = viewer.post("/routes/test", {"request": asked}).json()
    assert (answer["reason"], answer["rule"]) == ("matched", "rest")
    seen = answer["request"]
    assert (seen["prompt_tokens"], seen["max_tokens"]) == (prompt_tokens, 5 if bound else 0)
    assert answer["max_tokens"] == (bound and {**bound, "note": None})


def test_every_api_that_gateways_serve_may_be_asked_about():
    assert set(get_args(Path)) == set(ENDPOINTS)


@pytest.mark.usefixtures("rules")
def test_the_models_own_tokenizer_counts(admin, viewer, word_tokenizer):
    admin.patch("/models/org/llama", {"tokenizer": upload(admin, "tokenizer", word_tokenizer)})
    body = {"messages": [{"role": "user", "content": "one two three"}]}
    seen = viewer.post("/routes/test", sent(body=body)).json()["request"]
    # Three words, the role, and 4 tokens for the message.
    assert (seen["prompt_tokens"], seen["prompt_tokens_source"]) == (8, "tokenizer")


@pytest.mark.usefixtures("rules")
def test_the_models_own_chat_template_counts(admin, viewer, word_tokenizer):
    template = b"{% for m in messages %}a {{ m.role }} says {{ m.content }} {% endfor %}and then"
    files = {
        "tokenizer": upload(admin, "tokenizer", word_tokenizer),
        "chat_template": upload(admin, "chat_template", template),
    }
    assert admin.patch("/models/org/llama", files).status_code == 200
    body = {"messages": [{"role": "user", "content": "one two three"}]}
    seen = viewer.post("/routes/test", sent(body=body)).json()["request"]
    assert (seen["prompt_tokens"], seen["prompt_tokens_source"]) == (8, "template")


def upload(admin, kind: str, content: bytes) -> str:
    path = f"/api/v1/artifacts?kind={kind}&name=x&reason=r"
    stored = admin.client.generic("POST", path, content, content_type="application/octet-stream")
    assert stored.status_code == 201, stored.content
    return str(stored.json()["item"]["sha256"])


@pytest.mark.usefixtures("rules")
def test_an_alias_is_tried_as_its_model(admin, viewer):
    admin.post("/aliases", {"name": "small", "model": "org/llama"})
    for question in (sent(body={"model": "small"}), {**REQUEST, "model": "small"}):
        seen = viewer.post("/routes/test", question).json()["request"]
        assert (seen["asked_model"], seen["model"]) == ("small", "org/llama")


@pytest.mark.parametrize(
    ("tenant", "question", "reason"),
    [
        ({"models": []}, sent(), "model_not_allowed"),
        ({"blocked": True}, sent(), "tenant_blocked"),
        ({"n_cap": 2}, sent(body={"n": 3}), "n_above_cap"),
        ({"priority_classes": []}, sent(headers={"x-priority-class": "chat"}), "priority_class_not_allowed"),
        ({}, sent(headers={"x-priority-class": "nobody"}), "bad_header"),
        ({}, sent(body={"model": "nobody"}), "model_not_found"),
        ({}, sent(body={"max_tokens": "many"}), "bad_field"),
        ({}, sent(body={"max_completion_tokens": 1}), "conflicting_max_tokens"),
        ({}, sent(path="/v1/completions"), "bad_field"),
    ],
)
def test_it_tells_why_gateways_refuse_a_request_before_any_rule(admin, viewer, rules, tenant, question, reason):
    admin.patch("/tenants/acme", tenant)
    answer = viewer.post("/routes/test", question).json()
    assert (answer["reason"], answer["rule"], answer["tried"], answer["request"]) == (reason, None, [], None)
    assert answer["message"]


@pytest.mark.usefixtures("rules")
def test_a_key_is_named_by_its_first_characters(admin, viewer):
    key = admin.post("/tenants/acme/keys", {"label": "k"}).json()
    prefix = key["secret"][:8]
    by_key = {"request": {**sent()["request"], "tenant": None, "key_prefix": prefix}}
    assert viewer.post("/routes/test", by_key).json()["request"]["tenant"] == "acme"
    admin.patch(f"/keys/{key['item']['id']}", {"blocked": True})
    assert viewer.post("/routes/test", by_key).json()["reason"] == "key_blocked"


@pytest.mark.parametrize(
    ("fields", "path", "rule"),
    [
        ({"tenant": None}, "/request/tenant", "one_of"),
        ({"key_prefix": "hw-12345"}, "/request/tenant", "one_of"),
        ({"tenant": None, "key_prefix": "hw-12345"}, "/request/key_prefix", "reference"),
        ({"tenant": None, "key_prefix": "hw-1"}, "/request/key_prefix", "too_short"),
        ({"tenant": "nobody"}, "/request/tenant", "reference"),
        ({"headers": {"Authorization": "Bearer hw-secret"}}, "/request/headers", "secret"),
        ({"headers": {"X-Api-Key": "hw-secret"}}, "/request/headers", "secret"),
        ({"path": "/v1/files"}, "/request/path", "literal_error"),
    ],
)
def test_a_whole_request_put_wrongly_is_refused(viewer, rules, fields, path, rule):
    answer = viewer.post("/routes/test", sent(**fields))
    assert answer.status_code == 422
    assert [(problem["path"], problem["rule"]) for problem in answer.json()["problems"]] == [(path, rule)]


@pytest.mark.usefixtures("rules")
def test_candidates_are_tried_instead_of_the_stored_rules(viewer):
    routes = {"only": {"match": {"max_prompt_tokens": 5}, "pools": {"short": 1000}}}
    answer = viewer.post("/routes/test", {**REQUEST, "routes": routes}).json()
    assert (answer["reason"], [tried["rule"] for tried in answer["tried"]]) == ("no_route", ["only"])
    assert viewer.post("/routes/test", {**REQUEST, "routes": {}}).json()["tried"] == []
    assert viewer.get("/routes/only").status_code == 404


@pytest.mark.parametrize(
    ("route", "path", "rule"),
    [
        ({"pools": {"nowhere": 1000}}, "/routes/only/pools/nowhere", "reference"),
        ({"pools": {"short": 999}}, "/routes/only/pools", "sum"),
        ({}, "/routes/only", "one_of"),
        (
            {"pools": {"short": 1000}, "match": {"tenants": ["nobody"]}},
            "/routes/only/match/tenants/nobody",
            "reference",
        ),
        ({"colour": "red"}, "/routes/only/colour", "extra_forbidden"),
    ],
)
def test_candidates_are_held_to_what_stored_rules_are(viewer, pools, route, path, rule):
    answer = viewer.post("/routes/test", {**REQUEST, "routes": {"only": route}})
    assert answer.status_code == 422, answer.content
    assert [(problem["path"], problem["rule"]) for problem in answer.json()["problems"]] == [(path, rule)]


@pytest.mark.usefixtures("rules")
def test_a_prompt_is_taken_to_be_shortened_only_where_every_engine_heeds_that(admin, viewer):
    body = {"model": "org/llama", "prompt": "x" * 400, "truncate_prompt_tokens": 3}
    counted = []
    for kind in ("vllm", "llamacpp"):
        engine = {"name": kind, "kind": kind, "pool": "short", "url": f"http://{kind}:8000", "served_model": "m"}
        assert admin.post("/engines", engine).status_code == 201
        asked = {"request": {"tenant": "acme", "path": "/v1/completions", "body": body}}
        counted.append(viewer.post("/routes/test", asked).json()["request"]["prompt_tokens"])
    assert counted == [3, 100]


@pytest.mark.usefixtures("rules")
def test_it_tells_what_stands_in_the_pools(admin, operator, viewer):
    for number in (1, 2):
        engine = {"name": f"e{number}", "pool": "short", "url": f"http://127.0.0.1:{number}", "served_model": "m"}
        assert admin.post("/engines", engine).status_code == 201
    operator.post("/engines/e2/cordon")
    forced = {"subject_kind": "pool", "subject": "short", "state": "closed", "expires_in_seconds": 600}
    by_pool = operator.post("/overrides", forced).json()["item"]
    stricter = {**forced, "subject_kind": "engine", "subject": "e1", "state": "open"}
    by_engine = operator.post("/overrides", stricter).json()["item"]
    standing = viewer.post("/routes/test", REQUEST).json()["standing"]
    assert standing["long"] == {"engines": [], "cordoned": [], "override": None}
    short = standing["short"]
    assert short["cordoned"] == ["e2"]
    assert (short["override"]["name"], short["override"]["expires_at"]) == (by_pool["name"], by_pool["expires_at"])
    assert [(engine["name"], engine["override"]["name"]) for engine in short["engines"]] == [("e1", by_engine["name"])]


def test_it_tells_of_a_cascade_and_which_requests_it_is_for(pools, viewer):
    pools.post("/models", {"name": "org/tiny", "max_context_tokens": 8192})
    pools.post("/pools", {"name": "tiny", "model": "org/tiny"})
    cascade = {"pool": "tiny", "escalate_on": ["length"], "max_prompt_tokens": 100}
    assert pools.post("/routes", {"name": "all", "pools": {"long": 1000}, "cascade": cascade}).status_code == 201
    told = viewer.post("/routes/test", {**REQUEST, "prompt_tokens": 100}).json()
    assert told["cascade"] == {**cascade, "confidence_permille": None, "asked_first": True}
    assert told["standing"].keys() == {"long", "tiny"}
    longer = viewer.post("/routes/test", {**REQUEST, "prompt_tokens": 101}).json()
    assert not longer["cascade"]["asked_first"]


@pytest.mark.usefixtures("rules")
def test_a_pinned_tenant_is_routed_by_its_version_and_others_by_the_newest(admin):
    admin.post("/models", {"name": "llama-v2", "max_context_tokens": 8192})
    admin.post("/aliases", {"name": "llama", "model": "llama-v2"})
    assert admin.post("/tenants", {"name": "fixed", "pins": {"llama": "org/llama"}}).status_code == 201
    assert admin.post("/tenants", {"name": "follows"}).status_code == 201
    seen = {}
    for tenant in ("fixed", "follows"):
        by_sizes = admin.post("/routes/test", {**REQUEST, "model": "llama", "tenant": tenant}).json()
        sent = {"tenant": tenant, "body": {"model": "llama", "messages": [{"role": "user", "content": "hi"}]}}
        by_body = admin.post("/routes/test", {"request": sent}).json()
        seen[tenant] = by_sizes["request"]["model"], by_body["request"]["model"], by_body["request"]["asked_model"]
    assert seen == {"fixed": ("org/llama",) * 2 + ("llama",), "follows": ("llama-v2",) * 2 + ("llama",)}


@pytest.mark.usefixtures("rules")
def test_a_model_that_is_an_adapter_is_routed_to_no_pool_that_lacks_it(admin):
    made = admin.post("/models", {"name": "sql", "max_context_tokens": 8192, "adapter": "sql-lora"})
    assert made.status_code == 201, made.content
    answer = admin.post("/routes/test", {**REQUEST, "model": "sql"}).json()
    assert (answer["reason"], answer["pools"]) == ("no_route", {})
