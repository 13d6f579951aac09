from __future__ import annotations

from bench.support.unit import environment_of


def test_a_programs_environment_is_that_of_its_unit_less_folders_of_systemds(tmp_path):
    (tmp_path / "one.service").write_text(
        "[Service]\nEnvironment=A=1\nEnvironment=STATE=%S/one\nEnvironmentFile=-/etc/one.env\n"
        'Environment="B=two words" C=x=y\n# Environment=D=4\n'
    )
    assert environment_of("one.service", units=tmp_path) == {"A": "1", "B": "two words", "C": "x=y"}


def test_the_agents_unit_is_read():
    assert "HEADWORKS_AGENT_STATE_DIR" not in environment_of("headworks-agent.service")
