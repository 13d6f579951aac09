"""Rows of what serves: nodes, GPUs, engines, models and their files, pools."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy


class Node(models.Model):
    """A machine with GPUs. Its agent is the target of the same name."""

    name = models.CharField(max_length=63, unique=True)
    cordoned = models.BooleanField(default=False)
    cordon_reason = models.CharField(max_length=500, blank=True)
    # Reported by the agent; empty until it has.
    agent_version = models.CharField(max_length=200, blank=True)
    driver_version = models.CharField(max_length=200, blank=True)
    # The newest that the driver can run.
    cuda_version = models.CharField(max_length=200, blank=True)
    gpu_source = models.CharField(max_length=16, default="none")
    gpu_problems = models.JSONField(default=list)
    host_problems = models.JSONField(default=list)
    simulated = models.BooleanField(default=False)
    cordon_applied = models.BooleanField(default=False)
    # What its own policy lets be done, by engine; "" is the node itself.
    allowed_acts = models.JSONField(default=dict)
    # Engines that answer on it and that no configuration names (wire.messages.FoundEngine).
    found_engines = models.JSONField(default=list)
    reported_at = models.DateTimeField(null=True)
    # The revision of the slice that its newest report went by; null where its agent tells none.
    reported_revision = models.PositiveBigIntegerField(null=True)

    def __str__(self) -> str:
        return self.name


class Gpu(models.Model):
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="gpus")
    uuid = models.CharField(max_length=200)
    index = models.PositiveIntegerField()
    model = models.CharField(max_length=200)
    memory_bytes = models.PositiveBigIntegerField(null=True)
    pci_bus_id = models.CharField(max_length=200, blank=True)
    simulated = models.BooleanField(default=False)
    state = models.CharField(max_length=16, default="ok")
    reported_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["node", "uuid"], name="one_gpu_a_uuid")]
        ordering: ClassVar = ["node", "index"]


class Artifact(models.Model):
    """A file that targets fetch by its SHA-256. Immutable."""

    sha256 = models.CharField(max_length=64, unique=True)
    kind = models.CharField(
        max_length=32,
        choices=[
            ("tokenizer", _("tokenizer")),
            ("chat_template", _("chat template")),
            ("model_manifest", _("manifest of model files")),
        ],
    )
    name = models.CharField(max_length=200)
    size_bytes = models.PositiveBigIntegerField()
    content = models.BinaryField()
    uploaded_at = models.DateTimeField(auto_now_add=True)


class Model(models.Model):
    """What clients ask for by name."""

    name = models.CharField(max_length=200, unique=True)
    tokenizer = models.ForeignKey(Artifact, null=True, on_delete=models.PROTECT, related_name="models")
    max_context_tokens = models.PositiveBigIntegerField()
    default_max_tokens = models.PositiveBigIntegerField(default=512)
    max_tokens = models.PositiveBigIntegerField(default=4096)
    kv_bytes_per_token = models.PositiveBigIntegerField(default=0)
    chat_template = models.ForeignKey(Artifact, null=True, on_delete=models.PROTECT, related_name="templates_of")
    prompt_token_cost_micros = models.PositiveBigIntegerField(default=0)
    output_token_cost_micros = models.PositiveBigIntegerField(default=0)
    # The name of one; whether there is one is checked where the whole configuration is.
    cache_policy = models.CharField(max_length=63, blank=True)
    # The LoRA adapter of its pools' engines that it is; empty: a model of its own.
    adapter = models.CharField(max_length=63, blank=True)
    # What its files should be on each node that serves it, and where they lie there.
    manifest = models.ForeignKey(Artifact, null=True, on_delete=models.PROTECT, related_name="manifest_of")
    files_folder = models.CharField(max_length=1000, blank=True)
    # Phase of a start → the most that it may take, in ms; "total" is the whole start.
    cold_start_budget_ms = models.JSONField(default=dict)

    def __str__(self) -> str:
        return self.name


class Alias(models.Model):
    """Another name that clients may call a model by."""

    name = models.CharField(max_length=200, unique=True)
    model = models.ForeignKey(Model, on_delete=models.PROTECT, related_name="aliases")

    def __str__(self) -> str:
        return self.name


class ModelVersion(models.Model):
    """One version of what clients call `family`; the newest is the one that was published last.

    Clients reach it by the name of its model, or by the family: the alias of that name follows the newest, unless their
    tenant is pinned to another.
    """

    family = models.CharField(max_length=200)
    version = models.CharField(max_length=63)
    model = models.OneToOneField(Model, on_delete=models.CASCADE, related_name="version")
    published_at = models.DateTimeField(auto_now_add=True)
    # When its pools were last seen with a request; null: not yet.
    used_at = models.DateTimeField(null=True)
    # Since when it is known to have had none, without a break; null: not known. When that was looked at last.
    idle_since = models.DateTimeField(null=True)
    looked_at = models.DateTimeField(null=True)
    retired_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["family", "version"], name="one_version_a_family")]
        ordering: ClassVar = ["family", "-pk"]

    def __str__(self) -> str:
        return f"{self.family} {self.version}"


class NodeModelFiles(models.Model):
    """What a node's agent last said of a model's files on its disk (wire.messages.ModelFilesReport)."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="model_files")
    manifest = models.CharField(max_length=64)
    folder = models.CharField(max_length=1000)
    state = models.CharField(max_length=16)
    present_bytes = models.PositiveBigIntegerField(default=0)
    total_bytes = models.PositiveBigIntegerField(default=0)
    detail = models.CharField(max_length=2000, blank=True)
    at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["node", "manifest", "folder"], name="model_files_once_a_node")
        ]
        ordering: ClassVar = ["node", "folder"]


class CompatibilityRule(models.Model):
    """What must hold of the engines of a pool before requests are sent there, in the form of `fleet.compatibility`."""

    name = models.CharField(max_length=63, unique=True)
    rule = models.JSONField(default=dict)
    reason = models.CharField(max_length=500)
    stops = models.BooleanField(default=True)
    enabled = models.BooleanField(default=True)

    def __str__(self) -> str:
        return self.name


class Work(models.TextChoices):
    SHORT = "short", _("short")
    LONG = "long", _("long")
    BATCH = "batch", _("batch")
    EMBEDDING = "embedding", _("embedding")
    RERANK = "rerank", _("rerank")


class StaleTelemetry(models.TextChoices):
    """What a gateway does when it no longer knows an engine's KV use."""

    CLOSE = "close", _("close")
    HOLD = "hold", _("hold last")
    OPEN = "open", _("open")


class Pool(models.Model):
    """Engines that serve one model version for one kind of work."""

    name = models.CharField(max_length=63, unique=True)
    model = models.ForeignKey(Model, on_delete=models.PROTECT, related_name="pools")
    work = models.CharField(max_length=16, choices=Work.choices, default=Work.SHORT)
    kv_admit_permille = models.PositiveIntegerField(default=900)
    queue_cap = models.PositiveBigIntegerField(default=64)
    queue_ttl_ms = models.PositiveBigIntegerField(default=5000)
    stale_telemetry = models.CharField(max_length=16, choices=StaleTelemetry.choices, default=StaleTelemetry.HOLD)
    max_concurrency = models.PositiveBigIntegerField(null=True)
    adaptive_concurrency = models.BooleanField(default=False)
    ttft_slo_ms = models.PositiveBigIntegerField(null=True)
    tpot_slo_ms = models.PositiveBigIntegerField(null=True)
    e2e_slo_ms = models.PositiveBigIntegerField(null=True)
    objective_permille = models.PositiveIntegerField(default=950)
    breaker_error_permille = models.PositiveIntegerField(default=200)
    breaker_timeout_permille = models.PositiveIntegerField(default=500)
    breaker_timeout_ms = models.PositiveBigIntegerField(default=0)
    breaker_minimum_requests = models.PositiveBigIntegerField(default=20)
    breaker_window_ms = models.PositiveBigIntegerField(default=30_000)
    breaker_cooldown_ms = models.PositiveBigIntegerField(default=10_000)
    breaker_half_open_probes = models.PositiveBigIntegerField(default=3)
    # What its engines shall be started with, as on vLLM's command line without the dashes.
    engine_arguments = models.JSONField(default=dict)
    # LoRA adapters that each of its engines shall hold: name → folder on the node.
    adapters = models.JSONField(default=dict)

    def __str__(self) -> str:
        return self.name


class EngineKind(models.TextChoices):
    VLLM = "vllm", "vLLM"
    SGLANG = "sglang", "SGLang"
    TGI = "tgi", "TGI"
    LLAMACPP = "llamacpp", "llama.cpp"
    TRTLLM = "trtllm", "TensorRT-LLM"
    TRITON = "triton", "Triton"
    OLLAMA = "ollama", "Ollama"


class Engine(models.Model):
    """One served endpoint, of a node or (node null) reached directly by the gateways."""

    name = models.CharField(max_length=63, unique=True)
    node = models.ForeignKey(Node, null=True, on_delete=models.PROTECT, related_name="engines")
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="engines")
    kind = models.CharField(max_length=16, choices=EngineKind.choices, default=EngineKind.VLLM)
    url = models.CharField(max_length=300)
    served_model = models.CharField(max_length=200)
    cordoned = models.BooleanField(default=False)
    # What keeps it out of service beside people's cordons, such as `rollout 12`; empty: nothing does.
    held_out_by = models.CharField(max_length=63, blank=True)
    # Fernet token of the engine's own API key; empty where it has none.
    encrypted_api_key = models.TextField(blank=True)
    # Reported by the agent, or given by hand where no agent watches it.
    kv_capacity_tokens = models.PositiveBigIntegerField(null=True)
    state = models.CharField(max_length=16, default="unknown")
    version = models.CharField(max_length=200, blank=True)
    error = models.CharField(max_length=2000, blank=True)
    condition = models.CharField(max_length=16, default="ok")
    # How it was started and what was tried on it, as far as its agent tells (services.reports).
    facts = models.JSONField(default=dict)
    reported_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.name

    @property
    def takes_no_work(self) -> bool:
        """Whether people, its node or the program keep it out of service."""
        return self.cordoned or self.held_out_by != "" or (self.node is not None and self.node.cordoned)


class ActState(models.TextChoices):
    """`waiting` and `running` are open; an act that has any other state keeps it."""

    WAITING = "waiting", _("waiting")
    RUNNING = "running", _("running")
    DONE = "done", _("done")
    REFUSED = "refused", pgettext_lazy("act", "refused")
    FAILED = "failed", _("failed")
    EXPIRED = "expired", _("expired")
    CANCELLED = "cancelled", _("cancelled")


OPEN_STATES = (ActState.WAITING, ActState.RUNNING)


class Act(models.Model):
    """Something that an agent is asked to do once, on its node or on one engine of it.

    The primary key grows with each: it is the order in which acts are done.
    """

    act_id = models.CharField(max_length=32, unique=True)
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="acts")
    engine = models.ForeignKey(Engine, null=True, on_delete=models.CASCADE, related_name="acts")
    action = models.CharField(max_length=64)
    arguments = models.JSONField(default=dict)
    issued_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    issued_by = models.CharField(max_length=150)
    reason = models.CharField(max_length=500)
    state = models.CharField(max_length=16, choices=ActState.choices, default=ActState.WAITING)
    # As its agent told, and by its clock: why it was refused or failed, what was done, how long it took.
    result_reason = models.CharField(max_length=200, blank=True)
    detail = models.CharField(max_length=2000, blank=True)
    state_at = models.DateTimeField()
    took_ms = models.PositiveBigIntegerField(default=0)
    progress_permille = models.PositiveIntegerField(null=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["state", "expires_at"], name="act_by_state")]

    def __str__(self) -> str:
        return self.act_id
