"""Whose turn it is: the SQL of fair share, quotas and fitting needs.

Within a priority class the domain comes first that has the least in hand and was served least of
late, by its weight. A minute halves what it was served: who comes seldom has credit, and ten
batches do not wait behind ten thousand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from django.conf import settings
from django.db import connection

from qualityhub.inspections.models import Need
from qualityhub.inspections.needs import Offer, needs_from, unmet

if TYPE_CHECKING:
    from collections.abc import Collection

QUOTA_LOCK = 20_817
"""First key of the advisory locks of teams and domains with a quota."""

_USED = """coalesce(t.used * power(0.5, least(greatest(
    extract(epoch FROM clock_timestamp() - t.served_at), 0) / 60.0, 60)), 0)"""

# The recursion hops from one (class, domain, needs) that has work to the next: one probe of the
# index each, however long a backlog is. A batch in hand weighs two served ones. Pairs of row
# comparisons instead of equality: with the latter the planner reads the primary key in order, past
# every batch that was ever done.
_TURNS = """
WITH RECURSIVE waiting (priority, domain_id, needs) AS (
    (SELECT priority, domain_id, needs FROM inspections_batch WHERE status = 'queued'
     ORDER BY priority, domain_id, needs LIMIT 1)
    UNION ALL
    SELECT n.priority, n.domain_id, n.needs FROM waiting w CROSS JOIN LATERAL (
        SELECT b.priority, b.domain_id, b.needs FROM inspections_batch b
        WHERE b.status = 'queued'
            AND (b.priority, b.domain_id, b.needs) > (w.priority, w.domain_id, w.needs)
        ORDER BY b.priority, b.domain_id, b.needs LIMIT 1
    ) n
), running (domain_id, batches) AS (
    SELECT domain_id, count(*) FROM inspections_batch WHERE status = 'leased' GROUP BY domain_id
), team_running (team_id, batches) AS (
    SELECT d.team_id, sum(r.batches) FROM running r JOIN registry_domain d ON d.id = r.domain_id
    GROUP BY d.team_id
)
SELECT w.priority, w.domain_id, w.needs, d.team_id,
    coalesce(ds.most_leased, %(domain_most)s::integer),
    coalesce(ts.most_leased, %(team_most)s::integer)
FROM waiting w
JOIN registry_domain d ON d.id = w.domain_id
CROSS JOIN LATERAL (
    SELECT b.id FROM inspections_batch b
    WHERE b.status = 'queued'
        AND (b.priority, b.domain_id, b.needs) >= (w.priority, w.domain_id, w.needs)
        AND (b.priority, b.domain_id, b.needs) <= (w.priority, w.domain_id, w.needs)
        AND b.attempts < %(attempts)s::integer AND b.ready_at <= clock_timestamp()
    ORDER BY b.priority, b.domain_id, b.needs, b.id LIMIT 1
) first
LEFT JOIN running r ON r.domain_id = w.domain_id
LEFT JOIN team_running tr ON tr.team_id = d.team_id
LEFT JOIN inspections_domainturn t ON t.domain_id = w.domain_id
LEFT JOIN inspections_share ds ON ds.domain_id = w.domain_id
LEFT JOIN inspections_share ts ON ts.team_id = d.team_id
WHERE w.needs <> ALL(%(unfit)s::bigint[])
    AND (coalesce(ds.most_leased, %(domain_most)s::integer) = 0
        OR coalesce(r.batches, 0) < coalesce(ds.most_leased, %(domain_most)s::integer))
    AND (coalesce(ts.most_leased, %(team_most)s::integer) = 0
        OR coalesce(tr.batches, 0) < coalesce(ts.most_leased, %(team_most)s::integer))
ORDER BY w.priority, (2 * coalesce(r.batches, 0) + USED) / coalesce(ds.weight, 1),
    t.served_at NULLS FIRST, w.domain_id, first.id
LIMIT 32
""".replace("USED", _USED)

# One statement: what it locks, it leases; what another has locked, it leaves. Its commit does not
# wait for the disk: a claim that a crash of the database takes back stores nothing afterwards.
_TAKE = """
WITH unhurried AS (
    SELECT set_config('synchronous_commit', 'off', true)
), got AS (
    SELECT id FROM inspections_batch
    WHERE status = 'queued'
        AND (priority, domain_id, needs)
            >= (%(priority)s::smallint, %(domain)s::bigint, %(needs)s::bigint)
        AND (priority, domain_id, needs)
            <= (%(priority)s::smallint, %(domain)s::bigint, %(needs)s::bigint)
        AND attempts < %(attempts)s::integer AND ready_at <= clock_timestamp()
    ORDER BY priority, domain_id, needs, id LIMIT 1 FOR UPDATE SKIP LOCKED
), leased AS (
    UPDATE inspections_batch b
    SET status = 'leased', lease_token = %(token)s::uuid, leased_at = clock_timestamp(),
        lease_until = clock_timestamp() + make_interval(secs => %(seconds)s::double precision),
        worker = %(worker)s::text, attempts = b.attempts + 1
    FROM got WHERE b.id = got.id RETURNING b.id, b.domain_id
), served AS (
    INSERT INTO inspections_domainturn AS t (domain_id, served_at, used)
    SELECT domain_id, clock_timestamp(), 1 FROM leased
    ON CONFLICT (domain_id) DO UPDATE SET served_at = excluded.served_at, used = 1 + USED
)
SELECT leased.id FROM leased, unhurried
""".replace("USED", _USED)

_IN_HAND = """
SELECT count(*) FILTER (WHERE b.domain_id = %(domain)s), count(*)
FROM inspections_batch b JOIN registry_domain d ON d.id = b.domain_id
WHERE b.status = 'leased' AND d.team_id = %(team)s
"""


@dataclass(frozen=True, slots=True)
class Turn:
    """A domain that has work now.

    Attributes:
        priority: Class of work.
        domain: Primary key.
        needs: Row of what the work needs.
        team: Primary key of the domain's team.
        domain_most: Batches that the domain may have in work at once; 0 for any number.
        team_most: The same of the team.
    """

    priority: int
    domain: int
    needs: int
    team: int
    domain_most: int
    team_most: int

    @property
    def limited(self) -> bool:
        """Whether a quota holds for it."""
        return bool(self.domain_most or self.team_most)


class Fits:
    """Which needs a worker meets; rows of needs never change, so each is read once.

    Args:
        offer: What the worker has.
    """

    def __init__(self, offer: Offer) -> None:
        self.offer = offer
        self.fit: set[int] = {0}
        self.unfit: set[int] = set()

    def learn(self, keys: Collection[int]) -> bool:
        """Read needs that were not seen before; False where the worker meets all of them."""
        new = set(keys) - self.fit - self.unfit
        found = dict(Need.objects.filter(pk__in=new).values_list("pk", "document")) if new else {}
        for key in new:
            meets = key in found and not unmet(needs_from(found[key]), self.offer)
            (self.fit if meets else self.unfit).add(key)
        return not new & self.unfit


def turns(fits: Fits, attempts: int) -> list[Turn]:
    """Return whose work the worker may take now, the first turn first.

    Args:
        fits: What the worker can do.
        attempts: Batches that were lost so often are left.
    """
    while True:
        rows = _rows(
            _TURNS,
            {
                "attempts": attempts,
                "unfit": sorted(fits.unfit),
                "domain_most": settings.QH_DOMAIN_BATCHES,
                "team_most": settings.QH_TEAM_BATCHES,
            },
        )
        found = [Turn(*row) for row in rows]
        if fits.learn({turn.needs for turn in found}):
            return found


def take(turn: Turn, *, token: Any, worker: str, attempts: int) -> int | None:
    """Lease the oldest batch of a turn; None where others were faster."""
    rows = _rows(
        _TAKE,
        {
            "priority": turn.priority,
            "domain": turn.domain,
            "needs": turn.needs,
            "attempts": attempts,
            "token": token,
            "seconds": settings.QH_LEASE_SECONDS,
            "worker": worker[:200],
        },
    )
    return int(rows[0][0]) if rows else None


def within_quota(turn: Turn) -> bool:
    """Tell whether one more batch is allowed; the answer holds until the transaction ends.

    Claims of one team come one after another here: two at once would both find room.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [QUOTA_LOCK, turn.team % 2**31])
        cursor.execute(_IN_HAND, {"domain": turn.domain, "team": turn.team})
        of_domain, of_team = cursor.fetchone()
    return (not turn.domain_most or of_domain < turn.domain_most) and (
        not turn.team_most or of_team < turn.team_most
    )


def _rows(sql: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Run a statement that is planned once per connection: planning takes ten times as long."""
    connection.ensure_connection()
    raw = connection.connection
    # Django forbids prepared statements; its own cursors bind on the client and never use them.
    raw.prepare_threshold = raw.prepare_threshold or 5
    with connection.wrap_database_errors, psycopg.Cursor(raw) as cursor:
        cursor.execute(sql, values, prepare=True)
        return cursor.fetchall()
