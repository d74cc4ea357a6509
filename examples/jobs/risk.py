"""What a portfolio of loans may lose in a year, found by simulation. That is computing alone, so it has a process of its own."""

import random
from typing import TypedDict

from boxengine import ProcessJob

CHUNK = 500
"""Simulated years between two checkpoints."""


class Portfolio(TypedDict):
    loans: list[float]
    default_rate: float
    years: int


class Found(TypedDict):
    years: int
    total: float
    worst: float


def estimate_losses(job: ProcessJob[Portfolio]) -> Found:
    """The handler. If its process is killed, the next attempt goes on from the last checkpoint."""
    portfolio, years = job.args, job.args["years"]
    found: Found = job.state or Found(years=0, total=0.0, worst=0.0)
    while found["years"] < years and not job.cancelled:
        dice = random.Random(found["years"])
        losses = [loss_of_a_year(portfolio, dice) for _ in range(min(CHUNK, years - found["years"]))]
        found = {
            "years": found["years"] + len(losses),
            "total": found["total"] + sum(losses),
            "worst": max(found["worst"], *losses),
        }
        job.checkpoint(found)
        job.progress(done=found["years"], total=years)
    return found


def loss_of_a_year(portfolio: Portfolio, dice: random.Random) -> float:
    return sum(loan for loan in portfolio["loans"] if dice.random() < portfolio["default_rate"])
