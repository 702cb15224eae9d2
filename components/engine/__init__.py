"""Engines that run a function over the shards of a dataset: in this process, on several processes, or on a Beam runner.

    with choose(work, beam_args, ...) as engine:
        counted = engine.reduce(count, shards, merge)  # one partial result for each shard, merged as a tree
        written = list(engine.map(partial(write, counted=counted), shards))  # in the order of the shards

`engine` contains the interface and the merge tree, `processes` and `on_beam` contain other engines, and `choice`
selects one.
"""
