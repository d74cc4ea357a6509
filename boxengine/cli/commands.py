"""The commands of ``boxengine``: where each is, and what ``--help`` says of it."""

from __future__ import annotations

from boxengine.cli.on_demand import Home

COMMANDS = {
    "start": Home(
        "boxengine.cli.start:start", "Deliver items and run long jobs, until SIGTERM, SIGINT, SIGQUIT or SIGHUP."
    ),
    "consume": Home(
        "boxengine.cli.consume:consume",
        "Store messages from Kafka in their inbox boxes, until SIGTERM, SIGINT, SIGQUIT or SIGHUP.",
    ),
    "create": Home(
        "boxengine.cli.create:create", "Put items into an outbox or an inbox, or a job into a box of long jobs."
    ),
    "status": Home(
        "boxengine.cli.status:status",
        "Show counts by status, the age of the oldest pending item, the queue, pauses, workers and open circuits.",
    ),
    "pause": Home(
        "boxengine.cli.pausing:pause",
        "Pause a box in every worker, within 10 seconds: no item goes to a transport, and no job begins, until it is resumed.",
    ),
    "resume": Home("boxengine.cli.pausing:resume", "Let a paused box continue, in every worker, within a few seconds."),
    "cleanup": Home(
        "boxengine.cli.cleanup:cleanup",
        "Delete finished items that are older than the box's retention. The worker does so every 10 minutes by itself.",
    ),
    "audit": Home(
        "boxengine.cli.audit:audit",
        "Check a box's table for items that are out of order, missing, doubled or left behind; exit 1 if there are any.",
    ),
    "init": Home(
        "boxengine.cli.init:init",
        "Write a first outbox.yml and transports.py into this folder, or a kit: an application, or what a deployment needs.",
    ),
    "web": Home(
        "boxengine.cli.web:web", "Serve the console: what is stuck, why, and what to press. Until SIGTERM or SIGINT."
    ),
    "doctor": Home(
        "boxengine.cli.doctor:doctor",
        "Look for problems in production, and say what to do; exit 1 if any was found.",
    ),
    "demo": Home(
        "boxengine.cli.demo:demo",
        "Watch committed rows travel to a transport: a real PostgreSQL, a real Valkey, a worker, and a verdict.",
    ),
    "servers": Home(
        "boxengine.cli.servers:servers", "Run a PostgreSQL and a Valkey for development, until SIGTERM or SIGINT."
    ),
    "items": Home("boxengine.cli.items:cli", "Look at items, and retry, discard or delete them."),
    "jobs": Home("boxengine.cli.jobs:cli", "Look at long jobs, cancel them, run them again."),
    "subscriptions": Home(
        "boxengine.cli.subscriptions:cli",
        "List the subscriptions of a log, rewind one, let one skip items, or drop one.",
    ),
    "new": Home(
        "boxengine.cli.new:cli", "Write a first version of a model or a transport, or the classes of contracts."
    ),
    "db": Home("boxengine.cli.db:cli", "Create, check, upgrade or print the tables of all boxes."),
    "config": Home("boxengine.cli.config:cli", "Validate and show the configuration."),
}
