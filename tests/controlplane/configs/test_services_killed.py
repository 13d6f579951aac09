"""Quotas change all the time while web processes, Redis or PostgreSQL are killed or stand still: all of it arrives."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.controlplane.configs.disturbed import Site, Writer, assert_all_arrived, running_site
from tests.servers import Server, own_postgres, own_redis, stopped_postgres

# A busy machine takes its time to start a site.
pytestmark = pytest.mark.timeout(240)
ROUNDS = 3
AWAY_SECONDS = 1.0
STILL_SECONDS = 5.0


class Served(NamedTuple):
    """A site and the services that it stands on."""

    site: Site
    postgres: Server
    redis: Server


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """On what this run tests: SQLite, or PostgreSQL with Redis."""
    with running_site(tmp_path_factory.mktemp("site")) as running:
        yield running


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with own_postgres() as postgres, own_redis() as redis:
        settings = {"HEADWORKS_DATABASE_URL": postgres.url, "HEADWORKS_REDIS_URL": f"{redis.url}/0"}
        with running_site(tmp_path_factory.mktemp("served"), **settings) as site:
            yield Served(site, postgres, redis)


@pytest.mark.parametrize("killed", [0, 1])
def test_a_web_process_that_is_killed(site: Site, killed: int) -> None:
    web = site.webs[killed]
    with site.gateways() as end_gateways:
        with Writer(site) as writer:
            for _ in range(ROUNDS):
                web.kill()
                writer.wait_for_more()
                web.start()
                writer.wait_for_more()
        assert_all_arrived(site, writer, end_gateways)


def test_both_web_processes_killed_at_once(site: Site) -> None:
    with site.gateways() as end_gateways:
        with Writer(site) as writer:
            for web in site.webs:
                web.kill()
            for web in site.webs:
                web.start()
            writer.wait_for_more()
        assert writer.unanswered
        assert_all_arrived(site, writer, end_gateways)


@pytest.mark.own_servers
def test_redis_killed_and_started_again(served: Served) -> None:
    with served.site.gateways() as end_gateways:
        with Writer(served.site) as writer:
            for _ in range(ROUNDS):
                served.redis.kill()
                # None of them waits for it.
                writer.wait_for_more(20)
                served.redis.start()
                writer.wait_for_more()
        assert not writer.unanswered
        assert_all_arrived(served.site, writer, end_gateways)


@pytest.mark.own_servers
def test_a_postgresql_that_stands_still(served: Served) -> None:
    with served.site.gateways() as end_gateways:
        with Writer(served.site) as writer:
            with stopped_postgres(served.postgres.url):
                time.sleep(STILL_SECONDS)
            writer.wait_for_more()
        assert_all_arrived(served.site, writer, end_gateways)


@pytest.mark.own_servers
def test_postgresql_killed_and_started_again(served: Served) -> None:
    with served.site.gateways() as end_gateways:
        with Writer(served.site) as writer:
            for _ in range(ROUNDS):
                served.postgres.kill()
                time.sleep(AWAY_SECONDS)
                served.postgres.start()
                writer.wait_for_more()
        assert writer.unanswered
        assert_all_arrived(served.site, writer, end_gateways)
