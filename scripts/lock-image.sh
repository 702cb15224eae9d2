#!/bin/sh
# Writes down which version of each package goes into the image, with the hashes of its files, from setup.py.
#
#   scripts/lock-image.sh              after a change of setup.py: other versions stay as they are
#   scripts/lock-image.sh --upgrade    the newest of everything that setup.py allows
set -eu
cd "$(dirname "$0")/.."
uv=$(command -v uv || echo .venv/bin/uv)

# Debian 13: Python 3.13 and glibc 2.41, of which 2.40 is the newest that uv has a name for.
compile() {
    "$uv" pip compile --quiet --no-header --no-annotate \
        --python-version 3.13 --python-platform x86_64-manylinux_2_40 "$@"
}

compile "$@" --generate-hashes --extra tfx setup.py --output-file pipelines/cluster/image/requirements.txt
grep -c == pipelines/cluster/image/requirements.txt
