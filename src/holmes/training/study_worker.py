"""A process that trains one run after another: `python -m holmes.training.study_worker`.

Orders of its parent come in as JSON lines, reports go out as JSON lines. When the parent is gone, the worker
ends too; its run continues from the last saved epoch the next time.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from holmes.config.names import FILES
from holmes.config.schema import from_dict
from holmes.errors import HolmesError
from holmes.training.run import RunOptions, train


def main() -> None:
    reports = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what anything else prints must not pass for a report
    orders: SimpleQueue[dict[str, Any]] = SimpleQueue()
    threading.Thread(target=listen, args=(orders,), daemon=True).start()

    def report(**what: Any) -> None:
        reports.write(json.dumps(what) + "\n")

    while True:
        order = orders.get()
        try:
            report(result=carry_out(order, lambda entry: report(epoch=entry)))
        except HolmesError as error:
            report(error=str(error))
        except Exception as error:
            traceback.print_exc()
            report(error=f"{type(error).__name__}: {error}")


def listen(orders: SimpleQueue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        orders.put(json.loads(line))
    os._exit(0)


def carry_out(order: dict[str, Any], on_epoch: Any) -> dict[str, Any]:
    for path in order["use"]:
        if Path(path) not in FILES:  # parts of your own
            import_module("holmes.extend").load(path)
    return train(
        Path(order["store"]),
        from_dict(order["config"]),
        Path(order["out"]),
        order["seed"],
        order["protocol"],
        RunOptions(**order["options"]),
        on_epoch,
    )


if __name__ == "__main__":
    main()
