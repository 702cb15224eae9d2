"""One way to run a function over the shards of a dataset: in this process, on several, or on a Beam runner.

    with choose(work, beam_args, ...) as engine:
        counted = engine.reduce(count, shards, merge)  # a partial of each shard, merged as a tree of neighbors
        written = list(engine.map(partial(write, counted=counted), shards))  # in the order of the shards

`engine` holds the interface and the tree, `processes` and `on_beam` the other two engines, `choice` the rule.
"""
