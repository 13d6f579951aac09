"""The charts of the dashboards, as rows: what each asks, and how its numbers read.

Three layers, from what a user feels down to what causes it: a slow answer is either waited for (queue) or worked on
(engine), and an engine is bound by its KV cache or by its GPUs' compute.
"""

from dashboards.charts.engines import ENGINES
from dashboards.charts.experience import EXPERIENCE
from dashboards.charts.queue import QUEUE
from dashboards.charts.rows import FILTERS, Chart, Fold, Layer, Only, Query, Section

__all__ = ["CHARTS", "FILTERS", "LAYERS", "Chart", "Fold", "Layer", "Only", "Query", "Section"]

LAYERS = (EXPERIENCE, QUEUE, ENGINES)
CHARTS = tuple(chart for layer in LAYERS for chart in layer.charts)
