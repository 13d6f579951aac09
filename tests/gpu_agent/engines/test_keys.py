"""Keys whose files do not answer: a FIFO without a writer is as a disk that hangs."""

from __future__ import annotations

import asyncio
import os

import pytest

from gpu_agent.engines import keys
from gpu_agent.engines.keys import EngineKeys, Key, KeyUnusable
from gpu_agent.policy import EnginePolicy, NodePolicy
from tests.wire.fake_control import DEADLINE_SECONDS

HERE = "http://127.0.0.1:8001"


@pytest.fixture
def hanging(tmp_path):
    file = tmp_path / "hanging"
    os.mkfifo(file)
    yield file
    # The threads that wait for it are let go.
    os.close(os.open(file, os.O_RDWR | os.O_NONBLOCK))


def reading(**files):
    return EngineKeys(NodePolicy(engines={name: EnginePolicy(api_key_file=str(file)) for name, file in files.items()}))


async def test_a_key_on_a_disk_that_hangs_holds_up_that_of_no_other_engine(tmp_path, hanging):
    (tmp_path / "good").write_text("sk-good")
    engine_keys = reading(bad=hanging, good=tmp_path / "good")
    waiting = asyncio.create_task(engine_keys.read("bad", HERE))
    async with asyncio.timeout(DEADLINE_SECONDS):
        assert await engine_keys.read("good", HERE) == Key("sk-good", True)
    assert not waiting.done()
    waiting.cancel()


async def test_a_disk_that_hangs_is_said_and_asked_no_second_time_meanwhile(hanging, monkeypatch):
    read, asked = keys._read, []

    def counted(file):
        asked.append(file)
        return read(file)

    monkeypatch.setattr(keys, "_read", counted)
    monkeypatch.setattr(keys, "_READ_SECONDS", 0.05)
    engine_keys = reading(bad=hanging)
    for _ in range(3):
        with pytest.raises(KeyUnusable, match=r"hanging cannot be read: no answer within 0\.05 s$"):
            await engine_keys.read("bad", HERE)
    assert asked == [hanging]


async def test_two_that_ask_at_once_both_get_the_key(tmp_path):
    (tmp_path / "key").write_text("sk-key")
    engine_keys = reading(e1=tmp_path / "key")
    assert await asyncio.gather(*(engine_keys.read("e1", HERE) for _ in range(5))) == [Key("sk-key", True)] * 5


async def test_an_engine_without_a_key_has_none():
    assert await reading().read("e1", HERE) == Key("", True)


async def test_a_key_goes_to_no_other_machine_unless_the_policy_names_it(tmp_path):
    (tmp_path / "key").write_text("sk-key")
    elsewhere = "http://192.0.2.1:8001"
    with pytest.raises(KeyUnusable, match=r"192\.0\.2\.1 is no address of this node: .* name its url"):
        await reading(e1=tmp_path / "key").read("e1", elsewhere)
    named = EngineKeys(NodePolicy(engines={"e1": EnginePolicy(api_key_file=str(tmp_path / "key"), url=elsewhere)}))
    assert await named.read("e1", elsewhere) == Key("sk-key", False)
    with pytest.raises(KeyUnusable, match=r"8002 is not the engine's url .* which is http://192.0.2.1:8001"):
        await named.read("e1", "http://192.0.2.1:8002")
