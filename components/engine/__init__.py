"""Run a function over the shards of a dataset: in this process, on several processes, or on a Beam runner.

    with choose(work, beam_args, ...) as engine:
        counted = engine.reduce(count, shards, merge)  # one partial result for each shard, merged as a tree
        written = list(engine.map(partial(write, counted=counted), shards))  # in the order of the shards

`engine` has the interface and the tree, `processes` and `on_beam` the other engines, and `choice` the choice.
"""
