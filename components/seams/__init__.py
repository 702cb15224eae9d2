"""Private names, patches and error texts of other packages: one module per package, each use with a fallback.

A `Seam` lists the names that a feature depends on, the versions in which they were checked, and the fallback. The
functions that use the names stand beside it. No module outside of this folder uses a name of another package that
begins with an underscore; `tests/test_seams.py` checks it. `components/seams/README.md` has the table.

No module here imports its package before a function is called.
"""
