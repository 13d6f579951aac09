"""Queries on the samples of test_differential.py that take no range: aggregations, labels, dates, matching, buckets."""

from __future__ import annotations

_AGGREGATIONS = r"""
quantile(0.5, temperature)
quantile by (node) (0.9, temperature)
quantile without (node) (0.25, power)
quantile(0, power)
quantile(1, power)
quantile(-0.1, power)
quantile(1.1, power)
quantile(NaN, temperature)
quantile by (node) (0.37, special)
quantile(0.37, special)
quantile(0.6, {__name__=~"special|temperature"})
quantile(scalar(limit{node="n-1",gpu="0"}) / 100, temperature)
quantile(0.5, nothing_at_all)
quantile by (node) (0.5, flapping)
stddev(temperature)
stdvar(temperature)
stddev by (node) (power)
stdvar without (gpu) (power)
stddev(limit)
stdvar(limit)
stddev by (gpu) (tokens_total)
stddev(flapping)
count_values("value", limit)
count_values by (gpu) ("value", limit)
count_values without (gpu) ("value", limit)
count_values("gpu", limit)
count_values by (gpu) ("gpu", limit)
count_values without (gpu) ("gpu", limit)
count_values("value", special)
count_values("value", round(temperature, 10))
count_values("value", temperature / 7)
count_values("value", limit * 1e20)
count_values("value", limit * 1e-12)
count_values("value", -special * 0)
count_values("__name__", limit)
count_values without () ("__name__", limit)
count_values("", limit)
count_values("value", nothing_at_all)
sum by (value) (count_values("value", power > bool 100))
topk by (node) (1, special)
topk(9, special)
topk(NaN, temperature)
topk(1e19, temperature)
topk(+Inf, nothing_at_all)
bottomk(9.2e18, temperature)
topk(scalar(limit{node="n-1",gpu="0"}) - 78, temperature)
topk(time() % 3, temperature)
min by (node) (special)
max without (gpu) ({__name__=~"special|power"})
avg by (node) (special)
sum by (node) (special)
""".strip().splitlines()

_LABELS = r"""
label_replace(paths, "name", "$1", "model", "/models/(.*)")
label_replace(paths, "name", "$1", "model", "/models/(.+)-([0-9]+)b")
label_replace(paths, "size", "${2}b of $1 for $$5", "model", "/models/([a-z]+)-.*-([0-9]+)b")
label_replace(paths, "size", "$2b", "model", "/models/([a-z]+)-.*-([0-9]+)b")
label_replace(paths, "size", "${size}", "model", `.*-(?P<size>\d+b)`)
label_replace(paths, "size", "$size-$none-${9}-$", "model", `.*-(?P<size>\d+b)`)
label_replace(paths, "port", "$1", "image", "[^:]+:([0-9]{1,5})/.*")
label_replace(paths, "tag", "$2", "image", `(.*):(v\d+(?:\.\d+)*)`)
label_replace(paths, "tag", "$1$2", "image", "(.*):(latest)|.*(v0).*")
label_replace(paths, "first", "$1", "image", "(.*?)[:/].*")
label_replace(paths, "first", "$1", "image", `(\w+)\W.*`)
label_replace(paths, "image", "", "image", ".*")
label_replace(paths, "image", `\t$1\$0`, "image", `(.).*`)
paths{model=~`/models/.*\d+b`}
paths{model!=`\n`}
label_replace(paths, "image", "same", "image", ".*")
label_replace(paths, "image", "x", "missing", "")
label_replace(paths, "image", "x", "missing", ".+")
label_replace(paths, "image", "[$0]", "model", "/models/.*")
label_replace(paths, "image", "x", "model", "models")
label_replace(paths, "__name__", "renamed", "model", ".*")
label_replace(temperature, "node", "all", "node", ".*")
label_replace(temperature{gpu="0"}, "node", "all", "node", "n-1")
label_replace(temperature, "pair", "$2-$1", "node", "(n)-([0-9])")
label_replace(paths, "", "x", "model", ".*")
label_replace(paths, "a", "x", "model", "(")
label_replace(paths, "a", "x", "model", "a**")
label_replace(paths, "a", "x", "model", `(?=x)`)
label_replace(paths, "a", "x", "model", `(.)\1`)
label_replace(paths, "a", "x", "model", `a++`)
label_replace(paths, "a", "x", "model", `x{2,1}`)
sum by (size) (label_replace(paths, "size", "$1", "model", ".*-(.*)b"))
label_replace(rate(tokens_total[2m]), "rank", "$1", "gpu", "(.*)")
label_join(temperature, "both", "/", "node", "gpu")
label_join(temperature, "both", "", "gpu", "missing", "node")
label_join(temperature, "both", ",")
label_join(temperature, "gpu", "-", "node", "gpu")
label_join(temperature, "gpu", "-", "node")
label_join(temperature{gpu="0"}, "gpu", "-")
label_join(paths, "__name__", "_", "node", "node")
label_join(paths, "", "-", "node")
label_join(paths, "a", "-", "")
""".strip().splitlines()

_ORDER_AND_TIME = r"""
sort(temperature)
sort_desc(temperature)
sort(special)
sort_desc(special)
sort_desc(sum by (node) (temperature))
year()
month()
day_of_month()
day_of_week()
day_of_year()
days_in_month()
hour()
minute()
year(moments)
month(moments)
day_of_month(moments)
day_of_week(moments)
day_of_year(moments)
days_in_month(moments)
hour(moments)
minute(moments)
minute(vector(-1.5))
hour(vector(time() - 86400 * 200))
days_in_month(vector(951782400))
day_of_week(temperature)
hour(timestamp(temperature))
sum(hour() >= bool 9)
year(temperature offset 1m)
""".strip().splitlines()

_MATHEMATICS = r"""
sin(temperature)
cos(temperature)
tan(temperature)
asin(temperature / 100)
acos(temperature / 100)
acos(temperature)
atan(power)
sinh(temperature / 10)
cosh(temperature / 10)
tanh(temperature / 100)
asinh(power)
acosh(temperature)
acosh(special)
atanh(temperature / 100)
atanh(special)
sin(special)
deg(temperature)
rad(temperature)
pi()
pi() * temperature
deg(vector(pi()))
log2(temperature)
log10(power)
log2(special)
ln(special)
exp(special)
sqrt(special)
round(temperature, 0.1)
round(temperature, 7)
round(-power, 5)
round(special, 2)
round(temperature, 0)
round(temperature, -3)
round(temperature, scalar(limit{node="n-1",gpu="0"}))
round(temperature, NaN)
clamp(special, -1, 1)
clamp(temperature, NaN, 60)
clamp(temperature, 50, NaN)
clamp(special, -Inf, +Inf)
clamp_min(special, NaN)
clamp_max(special, +Inf)
clamp_min(temperature, scalar(temperature{node="n-1",gpu="0"}))
abs(special)
ceil(special)
floor(special)
sgn(-temperature)
absent(sum(temperature))
absent(temperature > 1000)
absent(nothing_at_all{node="n-1",node="n-1"})
absent(nothing_at_all{node=""})
scalar(vector(3))
1 / scalar(-vector(0))
1 / scalar(-vector(0) or flapping > 79)
scalar(sum(temperature))
vector(scalar(nothing_at_all))
vector(NaN) == vector(NaN)
vector(NaN) != bool vector(NaN)
""".strip().splitlines()

_OPERATORS = r"""
-(temperature atan2 limit)
-(temperature atan2 2)
-(2 atan2 temperature)
1 atan2 2
-1 atan2 -0
-(special atan2 special)
-(-special atan2 special)
special % 2
-special % 2
temperature % 0
7 % special
temperature % -7
-temperature % 7
special / special
1 / special
special ^ special
0 ^ special
(-8) ^ (1 / 3)
special * 0
special + special
special - special
special > special
special >= bool special
special == bool NaN
special != NaN
+Inf > special
-Inf < bool special
special and special > 0
special unless special > 0
(temperature > 60) + (limit > 80)
(temperature > 60) * on (node, gpu) (power > 100)
(temperature > 60) or (power > 100)
(temperature > 60) and on (node) (power > 100)
(temperature > 60) unless ignoring (gpu) (flapping > 10)
temperature and on () vector(1)
temperature unless on () vector(1)
temperature or on () vector(1)
vector(1) or on () temperature
temperature and ignoring (node, gpu) vector(1)
temperature or on (node) flapping or on (node) special
(temperature unless limit) or power
temperature * on (node) group_left (driver, model) info
temperature * on (node) group_left (gpu) flapping
temperature * on (node) group_left (missing) info
temperature > on (node) group_left (driver) info
temperature > bool on (node) group_left (driver) info
info < on (node) group_right (driver) temperature
temperature + ignoring (driver, model, gpu) group_left (model) info
temperature * on (node) group_left (__name__) info
info * on (node) group_right (__name__) temperature
temperature * on (node, gpu) limit * on (node, gpu) power
temperature / on (__name__) temperature{node="n-1",gpu="0"}
temperature == on (node, gpu, __name__) temperature
sum by (node) (temperature) > on (node) temperature
temperature * on (gpu) group_left () limit
info * ignoring (model, driver) limit
flapping * on (node) group_left () late
{__name__=~"limit|temperature"} / ignoring (gpu) group_left () info
{__name__=~"limit|info"} > 0
-{__name__=~"limit|info"}
-{__name__=~"limit|temperature"}
abs({__name__=~"limit|temperature"})
{__name__=~"limit|temperature"} > bool 70
sum without () ({__name__=~"limit|temperature"})
count by (__name__) ({__name__=~"limit|temperature"})
""".strip().splitlines()

_BUCKETS = r"""
histogram_quantile(0.5, broken_bucket)
histogram_quantile(0, broken_bucket)
histogram_quantile(1, broken_bucket)
histogram_quantile(0.01, broken_bucket)
histogram_quantile(NaN, broken_bucket)
histogram_quantile(0.99, rate(broken_bucket[2m]))
histogram_quantile(0.5, sum by (le) (broken_bucket))
histogram_quantile(0.5, broken_bucket * 0)
histogram_quantile(0.9, {__name__=~"(ttft_seconds|drift)_bucket"})
histogram_quantile(0.9, {__name__=~"(ttft_seconds|broken)_bucket",node="n-1"})
histogram_quantile(0.9, label_replace(ttft_seconds_bucket, "le", "10", "le", "2.5"))
histogram_quantile(0.9, label_replace(ttft_seconds_bucket, "le", "1", "le", "2.5") offset 1m)
histogram_quantile(0.9, label_replace(ttft_seconds_bucket{node="n-1"}, "le", "01", "le", "2.5"))
sum(histogram_quantile(0.9, ttft_seconds_bucket))
""".strip().splitlines()

INSTANT_QUERIES = [*_AGGREGATIONS, *_LABELS, *_ORDER_AND_TIME, *_MATHEMATICS, *_OPERATORS, *_BUCKETS]
