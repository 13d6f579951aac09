"""All answers that one gateway keeps, and the policies by which it gives them again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
from msgspec import UNSET

from gateway import settings
from gateway.caches.counting import CacheCounters, CacheKind
from gateway.caches.embedding import Embedder
from gateway.caches.exact import ExactAnswers, ShelfName
from gateway.caches.keys import Configurations
from gateway.caches.questions import Question
from gateway.caches.room import Answer, Kept, Recorder, Room
from gateway.caches.semantic import Candidate, Place, SemanticAnswers, Shared
from gateway.caches.vectors import Vector
from gateway.view import View
from wire.snapshot import CachePolicy, Model, Tenant


@dataclass(frozen=True, slots=True)
class Hit:
    """What answered a request. `similarity`: of a question that means the same; 1 of the same request."""

    kind: CacheKind
    kept: Kept
    age_ms: int
    similarity: float = 1.0

    @property
    def header(self) -> bytes:
        age = b"age=%d" % (self.age_ms // 1000)
        return b"exact; " + age if self.kind == "exact" else b"semantic; %s; similarity=%.3f" % (age, self.similarity)


@dataclass(slots=True)
class CacheUse:
    """How one request stands to the caches. `key`: its digest.

    `hit`: what answered it, if anything did. `answer`: that, or the engine's, where it was kept. `header`: what its
    client is told.
    """

    shelf: ShelfName
    policy: CachePolicy
    key: bytes
    question: Question | None = None
    place: Place | None = None
    vector: Vector | None = None
    recorder: Recorder | None = None
    hit: Hit | None = None
    answer: Answer | None = None
    header: bytes = b""


class AnswerCaches:
    """The caches of one gateway; other gateways have their own. `may_ask(engine)`: whether it stands well."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        may_ask: Callable[[View, str], bool],
        now_ms: Callable[[], int],
        counters: CacheCounters,
    ) -> None:
        self.now_ms, self.counters = now_ms, counters
        self.answer_bytes_max = settings.CACHE_ANSWER_BYTES.read()
        self.question_characters_max = settings.CACHE_QUESTION_CHARACTERS.read()
        self.room = Room(settings.CACHE_BYTES.read())
        self.configurations = Configurations()
        self._exact = ExactAnswers(self.room)
        self._semantic = SemanticAnswers(self.room)
        counters.watch(
            lambda: self.room.used_bytes,
            {
                "exact": lambda: len(self._exact),
                "semantic": lambda: len(self._semantic),
                "waiting": lambda: self._semantic.waiting,
            },
        )
        self._embedder = Embedder(
            http,
            may_ask,
            now_ms,
            settings.CACHE_EMBEDDING_TIMEOUT_SECONDS.read(),
            settings.CACHE_EMBEDDING_PAUSE_SECONDS.read(),
            lambda model, reason: counters.no_vector.labels(model, reason).inc(),
        )

    def configure(self, view: View) -> None:
        """Forget what no tenant may be answered with by this view."""
        snapshot = view.snapshot
        of_models = {model.cache_policy for model in snapshot.models.values()}

        def stays(shelf: ShelfName) -> bool:
            tenant = snapshot.tenants.get(shelf.tenant)
            if tenant is None or shelf.policy not in snapshot.cache_policies:
                return False
            return shelf.policy in (of_models if tenant.cache_policy is UNSET else (tenant.cache_policy,))

        self._exact.keep_only(stays)
        self._semantic.keep_only(stays)

    @staticmethod
    def policy_of(view: View, tenant: Tenant, model: Model) -> tuple[str, CachePolicy] | None:
        """The tenant's policy, else the model's; None where neither names one: nothing is cached."""
        name = model.cache_policy if tenant.cache_policy is UNSET else tenant.cache_policy
        return None if name is UNSET else (name, view.snapshot.cache_policies[name])

    def find_same(self, use: CacheUse, max_age_ms: int | None) -> Hit | None:
        """The answer to the same request."""
        if use.policy.exact is UNSET:
            return None
        now_ms = self.now_ms()
        kept = self._exact.get(use.shelf, use.key, use.policy.exact, now_ms, max_age_ms)
        return None if kept is None else Hit("exact", kept, kept.answer.age_ms(now_ms))

    async def find_alike(self, view: View, use: CacheUse, max_age_ms: int | None) -> Hit | None:
        """The answer to a question that means the same. Asks for an embedding only where there is anything to find."""
        policy, question, place = use.policy.semantic, use.question, use.place
        if policy is UNSET or question is None or place is None:
            return None
        if self._semantic.knows(place) or not policy.only_verified:
            use.vector = await self._embedder.vector(view, policy.embedding_model, question.text)
        if use.vector is None:
            return None
        now_ms = self.now_ms()
        found = await self._semantic.get(place, use.vector, policy, now_ms, max_age_ms)
        return None if found is None else Hit("semantic", found[0], found[0].answer.age_ms(now_ms), found[1])

    def keep(self, use: CacheUse, answer: Answer) -> None:
        """Keep an answer for the same request, and until it is approved for those that mean the same."""
        if use.policy.exact is not UNSET:
            self._exact.put(use.shelf, use.key, answer, use.policy.exact)
        policy = use.policy.semantic
        if policy is UNSET or use.question is None or use.place is None:
            return
        candidate = self._semantic.wait(use.place, use.key, use.question, answer, policy)
        candidate.vector = use.vector
        if not policy.only_verified and use.vector is not None:
            self._semantic.share(candidate, use.vector, policy, self.now_ms(), approved=False)

    async def approve(self, view: View, answer: Answer) -> bool:
        """Give an answer to others who ask the same in other words; whether it is newly so."""
        for kept in answer.kept:
            if isinstance(kept, Shared) and not kept.approved:
                kept.approved = True
                return True
        candidate = _candidate(answer)
        if candidate is None:
            return False
        policy = view.snapshot.cache_policies.get(candidate.place.shelf.policy)
        if policy is None or policy.semantic is UNSET:
            return False
        vector = candidate.vector
        if vector is None:
            vector = await self._embedder.vector(view, policy.semantic.embedding_model, candidate.question.text)
        # While the engine worked it may have gone.
        if vector is None or candidate not in self.room:
            return False
        return self._semantic.share(candidate, vector, policy.semantic, self.now_ms(), approved=True)

    def forget(self, answer: Answer) -> bool:
        """Forget an answer that is wrong, wherever it is kept; whether it was."""
        kept = list(answer.kept)
        for one in kept:
            self.room.drop(one)
        return bool(kept)

    def was_wrong(self, shared: Shared, similarity: float) -> None:
        """The answer to a question that does not mean the same; see `SemanticAnswers.was_wrong`."""
        self._semantic.was_wrong(shared, similarity)


def _candidate(answer: Answer) -> Candidate | None:
    return next((kept for kept in answer.kept if isinstance(kept, Candidate)), None)
