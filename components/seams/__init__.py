"""Private names, patches and texts of other packages: a module a package, and a way round for each.

A `Seam` lists the names that a need of ours depends on, the versions in which they were read, and what happens without
them. Beside it stand the functions that use the names. Nothing outside of this folder touches a name of another package
that begins with an underscore; `tests/test_seams.py` checks it. `components/seams/README.md` has the table.

No module here imports its package before a function is called.
"""
