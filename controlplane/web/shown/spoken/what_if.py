"""What what-if runs take for granted, why one cannot run or ended, and why an engine would not start."""

from __future__ import annotations

from django.utils.translation import gettext_noop

FORMS = (
    # Taken for granted.
    gettext_noop("TTFT 2 s and TPOT 100 ms, as the pool has none"),
    gettext_noop("around %(value)s, %(said)s"),
    gettext_noop("vLLM's default, as no engine reports it"),
    gettext_noop("%(value)s, as no engine reports it"),
    gettext_noop("that of an 8B model on one H100, as %(reason)s"),
    gettext_noop("no TTFT and TPOT were measured of its engines"),
    gettext_noop("calibrate is false"),
    # What its engines' speed was found by.
    gettext_noop("pool %(pool)s, the last hour"),
    # Why it cannot be asked for.
    gettext_noop(
        "no request of pool '%(pool)s' was counted in the last %(days)s days; give more days, or the whole ask"
    ),
    gettext_noop("%(count)s what-if runs wait already; wait for one, or cancel one"),
    gettext_noop("what-if %(id)s has ended: %(state)s"),
    gettext_noop("there is no what-if %(id)s"),
    gettext_noop("goodput needs an SLO; give ttft_ms, tpot_ms or e2e_ms"),
    gettext_noop("nothing arrives; give rate_per_second, or minutes in which something came"),
    gettext_noop("nothing came in any minute; leave them out"),
    gettext_noop("%(rate)s requests/s are more than %(most)s"),
    gettext_noop("a bucket stands there twice"),
    gettext_noop("%(count)s requests would come in one run, %(most)s at most: give fewer, or smaller loads"),
    gettext_noop("%(count)s combinations of settings; %(most)s at most, so give fewer values"),
    gettext_noop(
        "some %(tokens)s tokens would be simulated, %(most)s at most: give fewer settings, loads or seeds, or fewer "
        "measured_seconds"
    ),
    # Why it ended without a report.
    gettext_noop("the worker that ran it was killed, %(times)s times; is there enough memory?"),
    gettext_noop("%(module)s cannot be started: %(words)s"),
    gettext_noop("it took longer than %(seconds)s s"),
    gettext_noop("its report is larger than %(bytes)s bytes; give fewer settings or loads"),
    gettext_noop("it ended with status %(status)s and no report: %(said)s"),
    gettext_noop("a process of the runs ended with status %(status)s"),
    gettext_noop("is there enough memory?"),
    gettext_noop("%(said)s Give smaller loads, or fewer measured_seconds"),
    gettext_noop("it said nothing"),
    gettext_noop(
        "%(count)s of %(all)s runs ended within %(seconds)s s; give more limit_seconds, or fewer settings, loads, "
        "seeds or measured_seconds"
    ),
    # Why an engine would not start so.
    gettext_noop(
        "max_num_batched_tokens %(batched)s must be at least max_num_seqs %(seqs)s: each running sequence needs one "
        "token of a step"
    ),
    gettext_noop(
        "a sequence of max_model_len %(length)s tokens needs more than the KV cache of %(tokens)s tokens; raise the "
        "capacity or lower max_model_len"
    ),
)
