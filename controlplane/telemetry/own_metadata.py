"""What our own series are, whose bodies carry no metadata; docs/metrics.md has them with labels."""

from __future__ import annotations

from collections.abc import Container

from wire.remote_write import Metadata

# By prefix: name, type and help of each family.
_FAMILIES = {
    "headworks_": """
config_revision gauge Newest published revision.
targets gauge Targets that are not revoked, by kind and state.
target_lost gauge 1 while nothing is heard of the target (HEADWORKS_TARGET_SILENT_SECONDS).
target_config_refused gauge 1 while the target refuses its newest configuration (NACK).
target_config_behind_seconds gauge How long the newest revision waits for the target to apply it; 0: it has.
target_pushed_time_seconds gauge Unix time at which samples last came from the target.
target_token_expiry_time_seconds gauge Unix time at which the target's token ends, unless it is rotated before.
api_token_expiry_time_seconds gauge Unix time at which a person's API token ends, of those that end within 30 days.
api_token_made_time_seconds gauge Unix time at which that token was made.
metric_writer_token_expiry_time_seconds gauge Unix time at which a metric writer's token ends.
tenant_key_expiry_time_seconds gauge Unix time at which the first of the tenant's keys ends that was not rotated.
pool_objective_ratio gauge Part of the pool's requests that shall keep what it promises.
pool_promise_seconds gauge The longest time that the pool promises.
pool_queue_cap gauge How many requests may wait for the pool at each gateway.
pool_queue_ttl_seconds gauge How long a request may wait for the pool.
cold_start_seconds gauge How long a phase of the engine's last start took, of those with a budget.
cold_start_budget_seconds gauge How long that phase may take by the engine's model.
cold_start_time_seconds gauge Unix time at which that start began, where it is known.
batches_open gauge Batches that have not ended.
batches_past_window gauge Batches whose window is over before they were: still open, or given up within the last hour.
incidents_firing gauge Incidents that go on.
rules_failing gauge Alerting rules whose last evaluation failed.
rule_evaluation_late_seconds gauge How long the alerting rule waits that has been due for longest.
recording_rules_failing gauge Recording rules whose last evaluation failed.
deliveries_waiting gauge Messages that their receiver has not taken yet.
delivery_age_seconds gauge Since the receiver's oldest message that waits was written.
deliveries_failed gauge Messages that were given up, until they are sent again.
worker_seen_time_seconds gauge Unix time at which a worker last did scheduled work.
disk_bytes gauge Size of the file system of the control plane's data directory.
disk_available_bytes gauge Space of that file system that the control plane may still take.
metric_store_bytes gauge Size of the file, by what it holds: samples, or bodies that wait.
metric_store_limit_bytes gauge The size that the file may have.
repairs_held gauge Repairs of nodes that wait: for a cordon, for a person, or for the breaker.
repair_breaker_tripped gauge 1 while no repair begins, since too many nodes were taken in hand.
diagnosis_findings gauge Places at which the detector finds its bottleneck.
diagnosis_blind gauge 1: the detector could not see in the last round.
diagnosis_confidence_ratio gauge How sure a finding is, 0 to 1: how far nothing else explains it.
scale_queue_length gauge Requests that wait for a place in the pool.
scale_waiting_tokens gauge Prompt and expected output tokens of the requests that wait.
scale_queue_p95_seconds gauge How long requests waited for a place, p95 of a minute.
scale_ttft_p95_seconds gauge Time to first token, p95 of a minute.
scale_kv_use_ratio gauge KV cache in use, mean of the pool's engines.
scale_engines_wanted gauge Engines that the pool needs at this moment.
scale_engines_desired gauge Engines that the pool should have: up at once, down slowly.
scale_spare_lacking gauge 1 where an engine starts too slowly for who waits, and none is spare.
config_streams gauge Config streams open in this process.
publish_seconds histogram Time to make one revision from the writes that waited.
write_seconds histogram Time for which a write let no other one in, its commit included.
ack_batch_size histogram Acknowledgements stored in one transaction.
requests_total counter Requests answered, by route (its pattern, `unknown` where none matched) and status.
telemetry_samples_total counter Samples of remote writes that were taken, those sent again included.
telemetry_refused_bodies_total counter Remote writes that were refused, by the first reason that their sender was given.
telemetry_writer_samples_total counter Samples of remote writes of each metric writer that were taken.
telemetry_writer_refused_bodies_total counter Remote writes of a metric writer that were refused, by the first reason.
telemetry_lost_bodies_total counter Remote writes that were taken, and then refused for good by the external server.
telemetry_spool_bytes gauge Size of what waits for the external metrics server, as this process saw it last.
""",
    "headworks_gateway_": """
requests_total counter Requests by outcome (ok, refused, failed, cancelled) and named reason.
prompt_tokens_total counter Prompt tokens that were settled.
generation_tokens_total counter Output tokens that were settled.
queue_seconds histogram From arrival until it is sent to an engine.
ttft_seconds histogram From arrival to the first byte of a stream.
tpot_seconds histogram Time per output token of a stream.
e2e_seconds histogram From arrival to the last byte.
sized_requests_total counter Streams that began, by the prompt's length.
sized_prompt_tokens_total counter Their prompt tokens.
sized_ttft_seconds_total counter Their times to the first token.
prompts_measured_total counter Prompts by what their length was taken from: template, tokenizer, engine or estimate.
unseen_schemas_total counter Schemas that an engine of the pool had to compile, as far as this gateway has seen.
constrained_requests_total counter Requests of engines whose answer had to obey a schema or grammar.
warmed_schemas_total counter Schemas that an engine was asked for after it had started.
requests_without_max_tokens_total counter Requests that left their output length open.
slo_requests_total counter Requests of engines by whether all that was promised was met; those met are goodput.
slo_promises_total counter Requests of engines by each time that was promised them, and whether it was kept.
cancelled_tokens_total counter Output tokens of requests whose client left before the end.
tokens_after_cancel_total counter Output tokens that had come when their client was gone.
streams_cut_total counter Answers that had begun and broke off, by why.
body_read_seconds_total counter Time that clients took to send bodies.
body_write_seconds_total counter Time that clients took to take answers.
sessions_total counter Sessions that began.
session_requests_total counter Requests that name a session, when they are given a pool.
session_calls histogram Model calls of a session, when it is forgotten.
session_calls_highest gauge Most model calls of one session of the tenant, of those used within a minute.
session_tokens_highest gauge Most tokens of one session of the tenant, of those used within a minute.
repeated_tool_calls_total counter Admitted requests that end in the same call of a tool three times running, or more.
sessions_near_limit_total counter Sessions that have used four fifths of a limit.
sessions_closed_total counter Sessions that passed a limit.
repeated_requests_total counter Retries within a minute, and other prompts that came before within a day.
cascades_total counter Requests for which a small model's pool was asked first, by why another was asked after it.
cache_hostile_prompts_total counter Prompts whose beginning is new while what follows repeats.
cache_lookups_total counter Requests that a cache was looked into for.
cache_hits_total counter Requests that a cache answered.
cache_wrong_hits_total counter Answers of a cache that a client reported as wrong.
cache_embedding_failures_total counter Questions that no embedding was to be had for.
cache_bytes gauge Memory of kept answers.
cache_answers gauge Answers that are kept, and those that wait.
feedback_total counter Verdicts of clients on answers.
feedback_dropped_total counter Reports of clients that gave way to newer ones before they were sent.
retries_total counter Requests that an engine of the pool failed, sent to a second one.
decisions_dropped_total counter Decisions that gave way to newer ones before they were sent.
sketches_dropped_total counter Rows of per-minute sketches that gave way before they were sent.
kv_reserved_tokens gauge KV cache tokens that running requests may need.
kv_others_tokens gauge KV cache tokens that others than this gateway are taken to hold.
engine_look_age_seconds gauge Since the engine's metrics page was last read.
engine_look_failures_total counter Looks at the engine's metrics page that failed.
engine_requests gauge Requests at the engine.
engine_sequences gauge Sequences of the requests at the engine: n counts n.
breaker_state gauge 1 for the state that holds, overrides included.
breaker_forced gauge 1 while an override holds the breaker open or closed.
queue_length gauge Requests that wait for a place in the pool.
queue_tokens gauge Prompt and expected output tokens of the requests that wait.
pool_requests gauge Requests of this gateway at the pool's engines.
concurrency_limit gauge How many requests of this gateway may be at the pool's engines at once.
batch_lines_running gauge Lines of batches at the pool's engines.
batch_lines_waiting gauge Lines of batches that wait for what interactive requests leave.
batch_in_flight_limit gauge Requests in flight, interactive ones too, under which a line may start.
pool_breaker_state gauge 1 for the state of the pool's own breaker, overrides included.
pool_breaker_forced gauge 1 while an override holds the pool's breaker open or closed.
ledger gauge 1 for how limits are held: shared by all gateways on their Redis, or local, as this gateway's share.
ledger_requests_total counter Requests whose quota was decided, by how limits were held.
ledger_waiting gauge What waits to be told to the Redis, ends of requests above all.
ledger_lapsed_total counter Ends of requests that the Redis was not told in time.
ledger_unreadable gauge 1 for each tenant whose state at the Redis cannot be read; it has this gateway's share.
open_fds gauge Open file descriptors of the gateway's process.
fd_limit gauge How many file descriptors the gateway's process may have open.
cpu_seconds_total counter Processor time of the gateway's process.
certificate_expiry_time_seconds gauge Unix time at which the gateway's TLS certificate ends.
daily_budget_used_ratio gauge Used part of the tenant's tokens of the day, as they are counted here; 1 or more: spent.
config_revision gauge The configuration revision that requests are served by.
config_connected gauge 1 while the configuration stream is open.
draining gauge 1 once no new work is taken.
requests_in_flight gauge Requests that are being served.
config_persist_errors_total counter Revisions that could not be kept on disk.
""",
    "headworks_gpu_": """
up gauge 1 while NVML answers for the GPU.
xid_errors_total counter XIDs since the agent's start, repeats included.
xid_class_total counter XIDs that ask for something, by the class that the agent's table gives them.
clock_event_active gauge 1 while the reason slows the GPU down.
recovery_action gauge What NVML asks for, by its own number; 0: nothing.
throttled_seconds_total counter Time that clocks were held down, since the driver was loaded.
thermal_margin_limit_celsius gauge The margin DCGM_FI_DEV_GPU_TEMP_LIMIT at which the limit is reached, 0 or less.
nvlink_up gauge 1 while the link is active.
nvlink_bytes_total counter Payload over NVLink.
mig_instances gauge MIG instances of the GPU, while MIG is on.
topology_info gauge How the GPU reaches its peer; always 1.
numa_node gauge The NUMA node of the host that the GPU is at.
processes gauge Processes that hold the GPU's memory, by engine.
process_memory_bytes gauge The GPU's memory that processes hold, by engine.
""",
    "headworks_nvswitch_": """
last_sxid gauge The last SXid that the kernel told of the NVSwitch.
sxids_total counter SXids since the agent's start, repeats included.
""",
    "headworks_engine_": """
up gauge 1 while the engine's health page answers 200.
hung gauge 1 while requests run and nothing moves.
condition gauge 1 for the condition that holds; the others are absent.
restarts_total counter Restarts seen since the agent's start.
probe_ok gauge 1 while the probe passes.
canary_seconds gauge How long the probe's answer took.
awake gauge 0 while a rank sleeps.
process_start_time_seconds gauge Unix time at which the engine's process began.
requests_running gauge Requests that are in the running batch.
requests_waiting gauge Requests in the engine's own queue.
kv_cache_usage_ratio gauge Used part of the KV cache, 0 to 1.
kv_cache_capacity_tokens gauge Tokens that the KV cache holds.
preemptions_total counter Requests put back for lack of KV cache.
iterations_total counter Steps of the engine.
prompt_tokens_total counter Prompt tokens processed.
generation_tokens_total counter Output tokens made.
prefix_cache_queries_tokens_total counter Prompt tokens looked up in the prefix cache.
prefix_cache_hits_tokens_total counter Prompt tokens found in the prefix cache.
requests_finished_total counter Requests that ended, by reason.
ttft_seconds histogram Time to the first token.
inter_token_latency_seconds histogram Time between two tokens of a request.
tpot_seconds histogram Mean time per output token of each request.
e2e_seconds histogram From a request's arrival to its end.
queue_seconds histogram Time in the engine's own queue.
rank_requests_running gauge Requests in the running batch of one data-parallel rank.
rank_requests_waiting gauge Requests in the queue of one data-parallel rank.
rank_kv_cache_usage_ratio gauge Used part of one data-parallel rank's KV cache, 0 to 1.
rank_iterations_total counter Steps of one data-parallel rank.
rank_preemptions_total counter Requests that one data-parallel rank put back for lack of KV cache.
start_phase_seconds gauge How long each phase of the last start took.
out_of_memory_exit gauge 1 while the run before this one ended for want of GPU memory.
out_of_memory_bytes gauge What that run asked for, what was free, and what it held without using it.
arguments_differing gauge Arguments that its pool desires and it was started without, or with another value.
model_bytes gauge Size of the model's files.
loaded_models gauge Models in the engine's memory.
model_loaded gauge 1 while the served model is in memory.
model_memory_bytes gauge Memory that the served model takes.
model_gpu_memory_bytes gauge GPU memory that the served model takes.
model_context_tokens gauge Context length that the served model was loaded with.
model_expiry_time_seconds gauge Unix time at which the served model leaves memory.
process_cpu_seconds_total counter CPU time of the engine's processes since the agent first saw them.
process_resident_bytes gauge Resident memory of the engine's processes; shared pages count for each.
process_threads gauge Threads of the engine's processes.
process_open_fds gauge Open file descriptors of the process that is nearest to its limit.
process_fd_limit gauge The limit of file descriptors of that process.
connections gauge TCP connections at the engine's port, by state.
""",
    "headworks_agent_": """
up gauge Always 1.
gpu_source_info gauge Where GPU readings come from; always 1.
xid_source_info gauge What tells of XIDs now; always 1.
resident_bytes gauge Resident memory of the agent's process.
cpu_seconds_total counter CPU time of the agent's process.
spool_waiting_records gauge Records that wait in the spool.
spool_dropped_records_total counter Records that a full spool dropped.
""",
    "headworks_host_": """
file_descriptors_used gauge Open file descriptors of the host.
file_descriptors_limit gauge The host's limit of open file descriptors.
ephemeral_ports_used gauge Local ports that outgoing connections use.
ephemeral_ports_limit gauge Local ports that outgoing connections may use.
load1 gauge Load average of one minute.
cpus gauge CPUs of the host.
cpu_seconds_total counter CPU time of the host, by mode.
memory_bytes gauge Memory of the host.
memory_available_bytes gauge Memory that can be taken without swapping.
swap_bytes gauge Swap space of the host.
swap_free_bytes gauge Swap space that is free.
oom_kills_total counter Processes that the kernel killed for lack of memory.
disk_bytes gauge Size of the file system at the path.
disk_available_bytes gauge Space of that file system that users without privilege may take.
""",
}
OWN = {
    prefix + name: Metadata(prefix + name, kind, text, "")
    for prefix, lines in _FAMILIES.items()
    for name, kind, text in (line.split(" ", 2) for line in lines.strip().splitlines())
}


def own_among(names: Container[str]) -> list[Metadata]:
    """The families of ours that have series of these names."""
    return [each for each in OWN.values() if _any_series(each) in names]


def _any_series(family: Metadata) -> str:
    return f"{family.family}_count" if family.kind == "histogram" else family.family
