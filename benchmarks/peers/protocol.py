"""Protocol of a contender: it prints `ready {facts}`, then answers each line `run N` with a line of JSON.

Standard library only: every contender lives in its own venv.
"""

import json
import resource
import sys
import time
from collections.abc import Callable

OBS, ACTIONS, HIDDEN, BATCH, REPLAY = 8, 9, (32, 32), 256, 1_000_000


def serve(run: Callable[[int], None], **facts: object) -> None:
    """`run(n)` makes n iterations and returns when they are complete."""
    answer = sys.stdout
    sys.stdout = sys.stderr  # stdout has answers only
    facts["start_cpu_seconds"] = time.process_time()
    print("ready", json.dumps(facts), file=answer, flush=True)
    for line in sys.stdin:
        count = int(line.split()[1])
        wall, cpu = time.perf_counter(), time.process_time()
        run(count)
        seconds = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # KiB on Linux
        print(json.dumps(seconds | {"peak_rss_mib": rss}), file=answer, flush=True)
