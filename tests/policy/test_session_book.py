"""The book of sessions is bounded, forgets who is idle, and lets no tenant push out another one's."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from policy.session_book import SessionBook
from policy.sessions import Session, Spent

IDLE_MS = 1_000


class Heard:
    def __init__(self) -> None:
        self.began: Counter[str] = Counter()
        self.forgotten: Counter[str] = Counter()

    def book(self, most: int) -> SessionBook:
        return SessionBook(most, lambda tenant: self.began.update([tenant]), self._forget)

    def _forget(self, tenant: str, session: Session) -> None:
        self.forgotten.update([tenant])


def test_the_same_id_is_another_session_for_another_tenant():
    book = Heard().book(10)
    mine = book.find("alpha", "s", IDLE_MS, 0)
    assert book.find("beta", "s", IDLE_MS, 0) is not mine
    assert book.find("alpha", "s", IDLE_MS, 999) is mine


def test_a_session_that_nobody_used_begins_anew():
    heard = Heard()
    book = heard.book(10)
    first = book.find("alpha", "s", IDLE_MS, 0)
    assert book.find("alpha", "s", IDLE_MS, IDLE_MS) is not first
    assert (heard.began["alpha"], heard.forgotten["alpha"], len(book)) == (2, 1, 1)


def test_asking_is_using_whatever_comes_of_it():
    book = Heard().book(10)
    first = book.find("alpha", "s", IDLE_MS, 0)
    for now_ms in range(900, 9_001, 900):
        assert book.find("alpha", "s", IDLE_MS, now_ms) is first


def test_a_session_with_a_running_call_is_not_idle():
    book = Heard().book(10)
    first = book.find("alpha", "s", IDLE_MS, 0)
    first.running = Spent(iterations=1)
    assert book.find("alpha", "s", IDLE_MS, 10 * IDLE_MS) is first


def test_a_tenant_that_makes_up_sessions_pushes_out_its_own():
    book = Heard().book(10)
    mine = book.find("alpha", "s", IDLE_MS, 0)
    for number in range(1_000):
        book.find("beta", str(number), IDLE_MS, 1)
    assert len(book) == 10
    assert book.find("alpha", "s", IDLE_MS, 2) is mine


def test_a_book_of_one_has_room_for_the_newest():
    book = Heard().book(1)
    book.find("alpha", "a", IDLE_MS, 0)
    newest = book.find("alpha", "b", IDLE_MS, 0)
    assert book.find("alpha", "b", IDLE_MS, 0) is newest
    assert len(book) == 1


def test_the_one_used_the_longest_ago_goes_first():
    book = Heard().book(2)
    kept = book.find("alpha", "a", IDLE_MS, 0)
    book.find("alpha", "b", IDLE_MS, 1)
    book.find("alpha", "a", IDLE_MS, 2)
    book.find("alpha", "c", IDLE_MS, 3)
    assert book.find("alpha", "a", IDLE_MS, 4) is kept


def test_a_sweep_forgets_the_idle_ones_of_every_tenant_by_its_own_time():
    heard = Heard()
    book = heard.book(100)
    for number in range(5):
        book.find("alpha", str(number), IDLE_MS, number)
        book.find("beta", str(number), IDLE_MS, number)
    book.sweep(lambda tenant: {"alpha": 3, "beta": 100}[tenant], 5)
    assert heard.forgotten == {"alpha": 3}
    book.sweep(lambda tenant: 3, 1_000)
    assert len(book) == 0


def test_a_sweep_does_only_so_much_at_once():
    book = Heard().book(2_000)
    for number in range(1_200):
        book.find("alpha", str(number), IDLE_MS, 0)
    lengths = []
    while len(book):
        book.sweep(lambda tenant: IDLE_MS, 10 * IDLE_MS)
        lengths.append(len(book))
    assert lengths == [700, 200, 0]


def test_sessions_of_tenants_that_are_gone_are_forgotten():
    heard = Heard()
    book = heard.book(10)
    book.find("alpha", "a", IDLE_MS, 0)
    book.find("beta", "b", IDLE_MS, 0)
    book.keep_tenants({"beta"})
    assert (len(book), heard.forgotten) == (1, {"alpha": 1})


@given(
    st.integers(1, 6),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.integers(0, 700)), max_size=60),
)
def test_it_never_holds_more_than_it_may_and_forgets_each_once(most: int, uses: list[tuple[str, int, int]]):
    heard = Heard()
    book, now_ms = heard.book(most), 0
    for tenant, number, later_ms in uses:
        now_ms += later_ms
        book.find(tenant, str(number), IDLE_MS, now_ms)
        assert 1 <= len(book) <= most
        assert heard.began.total() - heard.forgotten.total() == len(book)
    book.sweep(lambda tenant: 0, now_ms + IDLE_MS)
    assert heard.began == heard.forgotten


def test_it_tells_which_sessions_were_used_lately():
    book = Heard().book(10)
    book.find("alpha", "old", IDLE_MS, 0)
    fresh = [book.find("alpha", name, IDLE_MS, 500) for name in ("a", "b")]
    book.find("beta", "old", IDLE_MS, 100)
    assert {tenant: sorted(map(id, used)) for tenant, used in book.used_since(500)} == {"alpha": sorted(map(id, fresh))}
