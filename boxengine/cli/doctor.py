"""``boxengine doctor``: problems in production, and what to do about them."""

from __future__ import annotations

import typer

from boxengine.cli.arguments import AsJson
from boxengine.cli.context import connect, globals_of, output, print_json
from boxengine.domain.legible import escaped
from boxengine.domain.masking import masked_text


def doctor(
    context: typer.Context,
    *,
    as_json: AsJson = False,
) -> None:
    """Look for problems in production, and say what to do; exit 1 if any was found.

    Looks at versions, privileges, tables and indexes, dead rows and autovacuum, old transactions, settings that lose commits,
    Redis's memory policy, clocks, and Kafka topics' partitions and replicas. It changes nothing.

    Examples: boxengine doctor; boxengine doctor --json
    """
    from boxengine.app.checking.doctor import Doctor  # noqa: PLC0415 - see Globals.boxes

    boxes = globals_of(context).boxes()
    servers = connect(boxes)
    try:
        remarks = Doctor(boxes, servers).look()
    finally:
        servers.close()
    if as_json:
        print_json(
            [
                {"area": each.area, "box": each.box, "text": masked_text(each.text), "advice": each.advice}
                for each in remarks
            ]
        )
    else:
        for each in remarks:
            mark = "!" if each.is_finding else " "
            # Servers quote what strangers have named.
            output().print(f"{mark} {each.area}: {escaped(masked_text(each.text))}", markup=False)
            if each.advice:
                output().print(f"    {escaped(each.advice)}", markup=False)
    raise typer.Exit(1 if any(each.is_finding for each in remarks) else 0)
