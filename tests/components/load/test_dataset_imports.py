"""Modules that the first batch of a table imports."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa

UNUSED = ["asyncio", "pandas", "PIL", "scipy", "simplejpeg", "tensorflow"]
PROGRAM = """
import sys, infeed
data = infeed.load(sys.argv[1], cache_dir=sys.argv[2], batch_size=2)
next(iter(data.numpy(label="id", pack=True)))
print(*sorted(sys.modules))
"""


def test_the_first_batch_of_a_table_imports_nothing_that_it_does_not_use(write, cache):
    path = write(
        "a.tfrecord", {"id": [0, 1, 2], "x": [0.5, 1.5, 2.5], "list": [[], [1], [1, 2]], "gap": [1.0, None, 2.0]}
    )
    command = [sys.executable, "-c", PROGRAM, path, cache]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    modules = {name for module in done.stdout.split() for name in (module, module.partition(".")[0])}
    if int(pa.__version__.partition(".")[0]) < 14:  # pyarrow 10 itself imports pandas when it flattens a list
        modules.discard("pandas")
    assert not modules.intersection(UNUSED)
