"""A compiled pipeline on a cluster: the job as data, its compiler, its image, its rehearsal here, and its run there."""
