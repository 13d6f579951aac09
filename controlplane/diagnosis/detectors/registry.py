"""The detectors, one a row of the table of bottlenecks and in its order. A new one is imported here and named below."""

from __future__ import annotations

from controlplane.diagnosis.detector import Detector
from controlplane.diagnosis.detectors.api_server_bound import ApiServerBound
from controlplane.diagnosis.detectors.cold_start import ColdStart
from controlplane.diagnosis.detectors.deploy_and_probes import DeployAndProbes
from controlplane.diagnosis.detectors.fan_out import FanOut
from controlplane.diagnosis.detectors.ghost_work import GhostWork
from controlplane.diagnosis.detectors.hardware import Hardware
from controlplane.diagnosis.detectors.head_of_line import HeadOfLine
from controlplane.diagnosis.detectors.kv_exhausted import KvExhausted
from controlplane.diagnosis.detectors.noisy_neighbour import NoisyNeighbour
from controlplane.diagnosis.detectors.open_ended_output import OpenEndedOutput
from controlplane.diagnosis.detectors.preemption_thrash import PreemptionThrash
from controlplane.diagnosis.detectors.prefill_stall import PrefillStall
from controlplane.diagnosis.detectors.queue_debt import QueueDebt
from controlplane.diagnosis.detectors.repeat_questions import RepeatQuestions
from controlplane.diagnosis.detectors.retry_storm import RetryStorm
from controlplane.diagnosis.detectors.runaway_agent import RunawayAgent
from controlplane.diagnosis.detectors.schema_compile import SchemaCompile
from controlplane.diagnosis.detectors.sockets import Sockets
from controlplane.diagnosis.detectors.vram_fragmentation import VramFragmentation
from controlplane.diagnosis.detectors.wrong_parallelism import WrongParallelism

DETECTORS: tuple[Detector, ...] = (
    KvExhausted(),
    PreemptionThrash(),
    VramFragmentation(),
    PrefillStall(),
    HeadOfLine(),
    NoisyNeighbour(),
    WrongParallelism(),
    QueueDebt(),
    RetryStorm(),
    OpenEndedOutput(),
    GhostWork(),
    RepeatQuestions(),
    FanOut(),
    RunawayAgent(),
    Sockets(),
    ApiServerBound(),
    SchemaCompile(),
    ColdStart(),
    DeployAndProbes(),
    Hardware(),
)
