"""Queries on the samples of test_differential.py: what pages and rules ask for most, and what is refused."""

from __future__ import annotations

BASIC_QUERIES = """
temperature
temperature{gpu="0"}
temperature{gpu!="0"}
temperature{node=~"n-[12]"}
temperature{node!~"n-1|n-2"}
{__name__=~"temp.*|limit",gpu="1"}
temperature{absent=""}
temperature{gpu=~".*",absent!~".+"}
nothing_at_all
temperature offset 2m
temperature offset -1m
tokens_total offset 1m30s
flapping
flapping offset 1m
special
-temperature
+temperature
(temperature)
rate(tokens_total[1m])
rate(tokens_total[5m])
rate(tokens_total[37s])
increase(tokens_total[2m])
increase(tokens_total[10m] offset 3m)
irate(tokens_total[1m])
irate(tokens_total[5m])
delta(temperature[3m])
delta(power[3m])
rate(flapping[5m])
sum_over_time(temperature[2m])
avg_over_time(temperature[2m])
min_over_time(temperature[2m])
max_over_time(power[2m])
count_over_time(power[2m])
last_over_time(power[2m])
last_over_time(flapping[10m])
present_over_time(flapping[1m])
count_over_time(flapping[2m])
sum_over_time(special[47s])
avg_over_time(special[47s])
min_over_time(special[47s])
max_over_time(special[47s])
quantile_over_time(0.9, temperature[3m])
quantile_over_time(0, temperature[3m])
quantile_over_time(1, temperature[3m])
quantile_over_time(-1, temperature[3m])
quantile_over_time(2, temperature[3m])
quantile_over_time(0.37, special[3m])
quantile_over_time(scalar(limit{node="n-1",gpu="0"}) / 100, temperature[3m])
sum(temperature)
sum by (node) (temperature)
sum without (node) (temperature)
sum by (missing) (temperature)
avg by (node) (power)
avg(special)
min by (gpu) (power)
max by (gpu) (power)
max(special)
min(special)
sum(special)
count by (node) (power)
count(flapping)
count(nothing_at_all)
group by (node) (temperature)
sum by (node, gpu) (rate(tokens_total[2m]))
topk(2, temperature)
topk by (node) (1, power)
bottomk(3, temperature)
topk(0, temperature)
topk(1.9, temperature)
topk(100, temperature)
temperature + limit
temperature - limit
temperature * 2
2 / temperature
temperature % 7
-7.5 % 2
temperature ^ 2
temperature / 0
special / special
temperature / on (node, gpu) limit
temperature / ignoring (gpu) limit
temperature * on (node) group_left (driver) info
info * on (node) group_right (model) temperature
temperature * on (node) group_left () info
temperature * ignoring (gpu, driver, model) group_left info
sum by (node) (temperature) / on (node) group_right info
temperature > 60
60 > temperature
temperature > bool 60
temperature <= limit
temperature > bool limit
temperature == temperature
temperature != bool temperature
limit - temperature < 20
special > 0
special == special
1 > bool 2
temperature > on (node, gpu) limit - 20
temperature < on (node) group_left () max by (node) (temperature)
temperature and limit
temperature and on (node) flapping
temperature unless on (node) flapping
temperature or limit
temperature{gpu="0"} or temperature
flapping or on (node) limit{gpu="0"}
temperature > 60 and limit > 80
temperature and ignoring (gpu) info
temperature unless temperature{node="n-1"}
nothing_at_all or temperature
nothing_at_all and temperature
temperature + nothing_at_all
histogram_quantile(0.9, ttft_seconds_bucket)
histogram_quantile(0.5, rate(ttft_seconds_bucket[2m]))
histogram_quantile(0.99, sum by (le) (rate(ttft_seconds_bucket[5m])))
histogram_quantile(0, sum by (node, le) (increase(ttft_seconds_bucket[5m])))
histogram_quantile(1, ttft_seconds_bucket)
histogram_quantile(1.5, ttft_seconds_bucket)
histogram_quantile(-0.5, ttft_seconds_bucket)
histogram_quantile(0.5, ttft_seconds_bucket{le!="+Inf"})
histogram_quantile(0.5, temperature)
histogram_quantile(0.5, ttft_seconds_bucket{le=~"0.1|.Inf"})
histogram_quantile(scalar(limit{node="n-1",gpu="0"}) / 100, ttft_seconds_bucket)
histogram_quantile(0.05, rate(drift_bucket[3m]))
histogram_quantile(0.2, rate(drift_bucket[3m]))
histogram_quantile(0.8, rate(drift_bucket[3m]))
histogram_quantile(0.95, rate(drift_bucket[3m]))
histogram_quantile(0.5, drift_bucket{le=~"0|.Inf"})
clamp_min(temperature, 60)
clamp_max(temperature, 60)
clamp(temperature, 55, 65)
clamp(temperature, 65, 55)
clamp_min(special, 1)
clamp_max(special, -1)
abs(power)
ceil(temperature)
floor(power)
round(temperature)
round(power, 0.5)
round(power, 100)
exp(temperature / 100)
ln(power)
log2(temperature)
log10(special)
sqrt(power)
sgn(power)
sgn(special)
absent(nothing_at_all)
absent(nothing_at_all{node="n-1",gpu!="0"})
absent(nothing_at_all{node="n-1",node="n-2",gpu="1"})
absent(flapping)
absent(temperature)
absent(sum(nothing_at_all{node="n-1"}))
time()
time() - 1e9
vector(1)
vector(time())
scalar(limit{node="n-1",gpu="0"})
scalar(limit)
scalar(nothing_at_all)
temperature * scalar(limit{node="n-1",gpu="0"})
1 + 2 * 3 ^ 2
-2 ^ 2
1 / 0
0 / 0
"a text"
late
rate(late[5m])
sum(rate(tokens_total[1m])) / count(info)
100 * (1 - avg by (node) (temperature / limit))
sum(temperature) by (gpu) > 100
count(temperature > 60) or vector(0)
max_over_time(temperature[2m] offset 1m) - temperature
temperature @ 0
temperature @ end()
rate(tokens_total[5m] @ end())
temperature @ start() offset 1m
tokens_total[2m]
temperature + limit{gpu="0"}
temperature * info
temperature * on (node) limit
temperature * on (gpu) limit
limit > on (gpu) temperature
{__name__=~"temperature|limit"} * 2
rate({__name__=~"temperature|limit"}[2m])
temperature == bool on (gpu) limit
temperature > on (node) group_left () temperature
sum(
temperature{gpu=~"("}
unknown_function(temperature)
rate(temperature)
1 > 2
{}
{gpu=~".*"}
sum_over_time(temperature)
temperature offset
temperature[5m] + 1
""".strip().splitlines()
