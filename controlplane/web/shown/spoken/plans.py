"""Why a plan of the planner is as it is, what of it would do, and whether a rate can be promised."""

from __future__ import annotations

from django.utils.translation import gettext_noop

FORMS = (
    # The tree.
    gettext_noop("yes"),
    gettext_noop("no"),
    gettext_noop("Does the model fit one GPU?"),
    gettext_noop("Does it fit the %(gpus)s GPUs of one machine?"),
    gettext_noop("Has a machine more than one GPU?"),
    gettext_noop("Are they linked by NVLink?"),
    gettext_noop("Does it fit all %(gpus)s GPUs of %(nodes)s machines?"),
    gettext_noop(
        "its weights, what it computes with and %(context)s fit: %(replicas)s, each with a batch of its own: no "
        "communication between GPUs, and throughput grows almost in proportion"
    ),
    gettext_noop("one sequence of %(tokens)s tokens"),
    gettext_noop("1 replica"),
    gettext_noop("%(count)s independent replicas"),
    gettext_noop("%(size)s are missing for %(context)s"),
    gettext_noop("%(size)s are missing on each"),
    gettext_noop("there is nothing to share it out to within it"),
    gettext_noop("no number of them shares out its heads or layers"),
    gettext_noop("%(count)s of them are the fewest that do"),
    gettext_noop(
        "an all-reduce in every layer of every token goes over NVLink: tensor parallelism, in the smallest degree that "
        "fits"
    ),
    gettext_noop("but its heads cannot be shared out: a pipeline, which cuts between layers"),
    gettext_noop(
        "an all-reduce in every layer of every token would go over PCIe, and decode waits for it: a pipeline passes on "
        "only what leaves a stage; tensor parallelism still lowers the latency of single requests, if that counts more"
    ),
    gettext_noop(
        "tensor parallelism over PCIe makes decode wait in every layer, and no pipeline fits: measure it first"
    ),
    gettext_noop("no split of its heads and layers uses machines in whole"),
    gettext_noop(
        "%(nodes)s machines are the fewest that do: %(inside)sa pipeline of %(stages)s stages over the net between them"
    ),
    gettext_noop("tensor parallelism within each, "),
    # What would make it fit.
    gettext_noop("weights in %(smaller)s instead of %(now)s"),
    gettext_noop("a KV cache in fp8, which halves it; try its accuracy on long contexts first"),
    gettext_noop("weights in %(smaller)s and a KV cache in fp8 together"),
    gettext_noop("contexts of %(tokens)s tokens at most (--max-model-len) instead of %(now)s"),
    gettext_noop("%(gpus)s GPUs of this kind for one engine, by %(how)s"),
    gettext_noop("tensor parallelism"),
    gettext_noop("a pipeline"),
    # Values to start with.
    gettext_noop("what vLLM takes itself on %(gpu)s"),
    gettext_noop("an A100"),
    gettext_noop("a GPU of %(least)s"),
    gettext_noop("70 GiB or more"),
    gettext_noop("less than 70 GiB"),
    gettext_noop("smaller steadies TPOT, larger shortens TTFT"),
    gettext_noop("a step of it is read within the TPOT of %(tpot)s ms"),
    gettext_noop("a step of more would take longer than the TPOT of %(tpot)s ms; TTFT of long prompts pays for it"),
    gettext_noop("as given"),
    gettext_noop("the KV cache would carry %(carried)s; %(bound)s is %(limit)s"),
    gettext_noop("where arithmetic binds a step on any GPU"),
    gettext_noop(
        "a full batch fits with at least %(share)s probability; by the mean alone it would be %(average)s, and of the "
        "longest %(longest)s"
    ),
    gettext_noop("%(served)s requests a second over all replicas × %(seconds)s s that a client will wait"),
    # Why something cannot be planned.
    gettext_noop(
        "no answered request was counted in the last %(days)s days; ask for more of them, or type the lengths"
    ),
    gettext_noop("the metrics do not answer: %(words)s"),
    gettext_noop("pool '%(pool)s' has no engine in service, or answered nothing in the last %(days)s days"),
    gettext_noop("type the rates"),
    gettext_noop("the file's quantization_config is not one that is known here: say what its weights take"),
    gettext_noop(
        "tensor parallel %(tensor)s × pipeline %(pipeline)s does not share out %(heads)s attention heads, %(kv)s "
        "key/value heads, %(layers)s layers, or the machines have no room for it"
    ),
    gettext_noop("a prompt has one token at least"),
    gettext_noop("give two percentiles at least, such as p50 and p95"),
    gettext_noop("a higher percentile cannot be shorter than a lower one"),
    gettext_noop("p50 must not be above the mean; give more percentiles or a histogram instead"),
    gettext_noop(
        "the percentile must be from 1 to %(most)s times the mean; give more percentiles or a histogram instead"
    ),
    gettext_noop("its calls write: give what a GPU writes"),
    gettext_noop("no call is of this model; there are %(names)s"),
    # A promise.
    gettext_noop("no route leads '%(tenant)s' to a pool: it is blocked, or may use no model that is routed"),
    gettext_noop("an engine has not told how much KV cache it has, so what it may hold is not known"),
    gettext_noop("how long requests stay there was not measured in the last hour, so a rate bounds no tokens"),
    gettext_noop("%(promised)s of %(most)s tokens would be promised%(percent)s"),
    gettext_noop("%(promised)s of %(most)s tokens would be promised%(percent)s, %(missing)s too many"),
    gettext_noop(
        "%(promised)s of %(most)s tokens would be promised%(percent)s, and tenants without a bound are in no sum: "
        "%(without)s"
    ),
    gettext_noop(
        "%(promised)s of %(most)s tokens would be promised%(percent)s, %(missing)s too many, and tenants without a "
        "bound are in no sum: %(without)s"
    ),
)
