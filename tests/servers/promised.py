"""The servers that ``.ci/run`` promises: if one is absent there, its tests fail and are not skipped."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.servers.offer import How, Offer

ABSENT = "server absent"


def promised_servers(environ: Mapping[str, str]) -> frozenset[str]:
    """The names in ``BOXENGINE_CI_PROMISES``, which counts only with ``CI=true``."""
    if environ.get("CI", "").lower() != "true":
        return frozenset()
    return frozenset(name.strip() for name in environ.get("BOXENGINE_CI_PROMISES", "").split(",") if name.strip())


def broken_promises(offers: Mapping[str, Offer], promised: frozenset[str]) -> list[str]:
    """One sentence for each promised server that the session does not have for real."""
    return [
        f"{name} was promised by .ci/run, but is {offers[name].how.value}: {offers[name].detail}"
        if name in offers
        else f"{name} was promised by .ci/run, but the tests know no such server"
        for name in sorted(promised)
        if name not in offers or offers[name].how in {How.ABSENT, How.MOCK}
    ]


def require(offer: Offer, promised: frozenset[str]) -> Offer:
    """Return the offer of an available server; otherwise skip the test, or fail it if the server was promised."""
    if offer.how is How.BROKEN:
        pytest.fail(f"{offer.server} did not start: {offer.detail}", pytrace=False)
    if offer.server in promised and offer.how in {How.ABSENT, How.MOCK}:
        pytest.fail("; ".join(broken_promises({offer.server: offer}, frozenset({offer.server}))), pytrace=False)
    if offer.how is How.ABSENT:
        pytest.skip(f"{ABSENT}: {offer.server}: {offer.detail}")
    return offer
