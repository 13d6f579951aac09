from __future__ import annotations

import pytest

from gpu_agent.exposition import is_sample_of, kv_capacity_tokens, labels
from tests.gpu_agent.fake_engine import VLLM_METRICS

INFO = b"vllm:cache_config_info"


def capacity(page: bytes) -> int | None:
    return kv_capacity_tokens([line for line in page.split(b"\n") if is_sample_of(line, INFO)])


def test_the_capacity_of_a_real_vllm_page_is_its_own_number():
    # 8192 blocks of 128 tokens stand beside it.
    assert capacity(VLLM_METRICS) == 1_048_576
    page = VLLM_METRICS.replace(b'kv_cache_size_tokens="1048576"', b'kv_cache_size_tokens="463459"')
    assert capacity(page) == 463_459


def test_data_parallel_engines_add_up():
    page = b'vllm:cache_config_info{engine="%d",kv_cache_size_tokens="%d",num_gpu_blocks="40"} 1.0\n'
    assert capacity(page % (0, 320) + page % (1, 321)) == 641


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b'vllm:cache_config_info{engine="0",num_gpu_blocks="8192",block_size="128"} 1.0\n',
        b'vllm:cache_config_info{kv_cache_size_tokens="None"} 1.0\n',
        b'vllm:cache_config_info{kv_cache_size_tokens="-5"} 1.0\n',
        b'vllm:cache_config_info{kv_cache_size_tokens="1e6"} 1.0\n',
        b'vllm:cache_config_info{kv_cache_size_tokens="' + b"9" * 5000 + b'"} 1.0\n',
        b'vllm:cache_config_info_created{kv_cache_size_tokens="5"} 1.0\n',
        b'# HELP vllm:cache_config_info kv_cache_size_tokens="5"\n',
        b'vllm:cache_config_info{x="y,kv_cache_size_tokens=\\"5\\""} 1.0\n',
        b'vllm:cache_config_info{kv_cache_size_tokens="5"} 1.0\nvllm:cache_config_info{engine="1"} 1.0\n',
    ],
)
def test_a_page_that_does_not_say_gives_no_number(page):
    assert capacity(page) is None


def test_labels_are_read_with_their_escapes():
    assert labels(b'm{a="x,b=\\"1\\"}",c="2"} 3') == {"a": 'x,b=\\"1\\"}', "c": "2"}
