"""What a sitting of the campaign has found; a campaign may be made in several sittings."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from tests.cluster_campaign.ledger import KINDS, Kind, Ledger, Tally

Layout = Literal["controller", "masters"]
Ended = Literal["all kills made", "interrupted", "out of time", "cluster lost"]


@dataclass
class Report:
    """What happened to one cluster.

    Attributes:
        layout: The cluster's kind.
        version: Apache's version.
        seed: Of all random choices.
        day: When it ended, such as 2026-11-26.
        revision: The commit of the checkout.
        kills: How often a master was killed and came back.
        ended: Why it ended, `cluster lost` if a killed master did not come back.
        seconds: How long it took.
        acknowledged: How many messages of each kind were.
        missing: How many of these were not received.
        repeated: How many messages of each kind were received more than once.
        failed: How many attempts to send failed.
        longest_send: Seconds from the beginning of a send to its acknowledgment, with all attempts.
        pauses: Of each kind, for each kill the seconds until a message was received whose send began after the kill; of
            `ordered` one of each key.
        orders: How many orders the shop took.
        orders_pause: Seconds, at most, in which no order was confirmed.
        pages: How many pages of the console were looked at.
        page_errors: How many of them showed an error.
        slowest_page: Seconds of the slowest page.
        counted: How many messages the query of Spark has counted; 0 without one.
        query_restarts: How often it failed, and was started again.
        problems: Broken promises; empty, if all is well.
    """

    layout: Layout
    version: str
    seed: int
    day: str = ""
    revision: str = ""
    kills: int = 0
    ended: Ended = "all kills made"
    seconds: float = 0.0
    acknowledged: dict[Kind, int] = field(default_factory=dict)
    missing: dict[Kind, int] = field(default_factory=dict)
    repeated: dict[Kind, int] = field(default_factory=dict)
    failed: dict[Kind, int] = field(default_factory=dict)
    longest_send: dict[Kind, float] = field(default_factory=dict)
    pauses: dict[Kind, list[float]] = field(default_factory=lambda: {kind: [] for kind in KINDS})
    orders: int = 0
    orders_pause: float = 0.0
    pages: int = 0
    page_errors: int = 0
    slowest_page: float = 0.0
    counted: int = 0
    query_restarts: int = 0
    problems: list[str] = field(default_factory=list)

    def count(self, ledger: Ledger) -> None:
        """Note what was sent and received, and the promises that the ledger found broken."""
        ledger.audit()
        self.problems += ledger.problems
        self.acknowledged = _each(ledger, lambda tally: len(tally.acknowledged))
        self.missing = _each(ledger, lambda tally: len(tally.missing))
        self.repeated = _each(ledger, lambda tally: tally.repeated)
        self.failed = _each(ledger, lambda tally: tally.failed)
        self.longest_send = {kind: round(tally.longest_send, 1) for kind, tally in ledger.tallies.items()}


def _each(ledger: Ledger, count: Callable[[Tally], int]) -> dict[Kind, int]:
    return {kind: count(tally) for kind, tally in ledger.tallies.items()}
