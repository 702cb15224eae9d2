#!/bin/sh
# Makes .venv-frameworks, or leaves it alone where it is up to date: Python 3.11 with the core of the package and the
# clients of `infeed.load` (PyTorch, JAX, Keras on both, Grain, Lightning, Accelerate), without TensorFlow.
set -eu
cd "$(dirname "$0")/.."
folder=.venv-frameworks

state() {
    pwd
    cksum setup.py scripts/setup-frameworks.sh
    "$folder/bin/python" --version
}

exec 9<setup.py && flock 9
[ -f "$folder/finished" ] && [ "$(cat "$folder/finished")" = "$(state 2>&1)" ] && exit
python=$(scripts/setup.sh --python 3.11)
echo "Setting up $folder on $python. This takes some three minutes and 3 GB, once."
rm -rf "$folder"
"$python" -m venv "$folder"
# By pip: it takes PyTorch from the package folders that a machine is configured for, as uv does not.
"$folder/bin/python" -m pip install --quiet --editable '.[frameworks]'
state >"$folder/finished" # last, so that a set-up that was killed starts afresh
