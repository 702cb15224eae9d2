#!/bin/sh
# Makes .venv with all that the project needs, or leaves it alone where it is up to date.
#
#   scripts/setup.sh            set up
#   scripts/setup.sh --which    only say which TFX on which Python would be used
#   scripts/setup.sh --python 3.11    print the path of an interpreter of this version
set -eu
cd "$(dirname "$0")/.."

# An activated .venv must not be chosen to rebuild itself.
PATH=$(printf '%s' "$PATH" | sed "s|$PWD/\.venv/bin:||g")
# pyenv's shims fail wherever their selected version is another one; its versions are found by folder instead.
export PYENV_VERSION=system
pyenv_versions=${PYENV_ROOT:-${HOME-}/.pyenv}/versions

#   stack       Python          Linux on x86_64 with
#   TFX 1.16    3.10            any glibc
#   TFX 1.21    3.11 to 3.13    glibc 2.39 or newer: ml-metadata has no wheel for older ones
choose_stack() {
    if ! machine_is_supported; then
        no_stack_fits
    elif find_python 3.10; then
        stack="TFX 1.16"
    elif glibc_is_new && find_python 3.13 3.12 3.11; then
        stack="TFX 1.21"
    elif download_python_with_uv 3.10; then
        stack="TFX 1.16"
    else
        no_stack_fits
    fi
}

# Sets `python` to the first interpreter of the given versions, best first, that runs.
find_python() {
    for version in "$@"; do
        for candidate in "python$version" python3 "$pyenv_versions/$version".*[0-9]/bin/python; do
            case $("$candidate" --version 2>/dev/null) in
            "Python $version."*) python=$(command -v "$candidate") && return ;;
            esac
        done
    done
    return 1
}

download_python_with_uv() {
    has_uv && UV_PYTHON_INSTALL_BIN=0 uv python install --quiet "$1" && python=$(uv python find --system "$1")
}

glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/^glibc //') # "2.36"; empty where there is none

machine_is_supported() { [ "$(uname -sm)" = "Linux x86_64" ] && [ -n "$glibc" ]; }

glibc_is_new() { [ "${glibc#2.}" -ge 39 ]; }

has_uv() { uv --version >/dev/null 2>&1; }

no_stack_fits() {
    if ! machine_is_supported; then
        why="TFX 1.16 and TFX 1.21 are set up here for Linux on x86_64 with glibc only"
        remedy="use such a machine, or a container of one: docker run --platform linux/amd64 -it python:3.10"
    elif glibc_is_new; then
        why="TFX 1.16 needs Python 3.10, and TFX 1.21 needs Python 3.11, 3.12 or 3.13"
        remedy="install one of them (pyenv install 3.10, say) or uv, which brings its own, then try again"
    else
        why="TFX 1.16 needs Python 3.10, and TFX 1.21, which takes Python 3.11 to 3.13, needs glibc 2.39 or newer"
        remedy="install Python 3.10 (pyenv install 3.10) or uv, which brings its own, then try again; or use Debian 13 or Ubuntu 24.04"
    fi
    if machine_is_supported && has_uv; then why="$why; uv could not download Python 3.10"; fi
    {
        echo "Found: $(found_pythons) on $(system_name)."
        echo "No stack fits: $why."
        echo "Do: $remedy."
    } >&2
    exit 1
}

no_python() {
    echo "There is no Python $1: found $(found_pythons) on $(system_name)." >&2
    echo "Do: install it (pyenv install $1), or uv, which brings its own." >&2
    exit 1
}

found_pythons() {
    for candidate in python3 "$pyenv_versions"/*/bin/python; do
        "$candidate" --version 2>/dev/null || true
    done | sort -u | paste -s -d , - | sed -e 's/,/, /g' -e 's/^$/no Python 3/'
}

system_name() {
    # shellcheck source=/dev/null
    distribution=$(. /etc/os-release 2>/dev/null && echo "$PRETTY_NAME, ") || true
    echo "$distribution$(uname -sm), ${glibc:+glibc }${glibc:-no glibc}"
}

# pyfarmhash, which TFX needs, is compiled during the installation. `uv venv` does without Python's own venv module.
require_build_tools() {
    name=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
    missing=""
    command -v g++ >/dev/null || missing="g++"
    "$python" -c 'import os, sysconfig as s; os.stat(s.get_path("include") + "/Python.h")' 2>/dev/null ||
        missing="$missing $name-dev"
    has_uv || "$python" -c 'import ensurepip, venv' 2>/dev/null || missing="$missing $name-venv"
    [ -z "$missing" ] && return
    echo "$python is there, but not all that building the environment takes." >&2
    echo "Do: apt-get install ${missing# }" >&2
    exit 1
}

make_environment() {
    rm -rf .venv
    if has_uv; then
        uv venv --quiet --seed --python "$python" .venv # --seed: TFX runs `python -m pip`
    else
        "$python" -m venv .venv
    fi
    install_with_uv || install_with_pip
    state >.venv/finished # last, so that a set-up that was killed starts afresh
}

# Takes one minute where pip takes up to six. A uv that is not on the PATH comes into .venv by pip.
install_with_uv() {
    if has_uv; then
        uv=uv
    else
        .venv/bin/python -m pip install --quiet uv || return
        uv=.venv/bin/uv
    fi
    "$uv" pip install --quiet --python .venv/bin/python --editable '.[tfx,test]'
}

# For machines whose package index only pip is configured for.
install_with_pip() {
    echo "uv could not install the packages; trying pip."
    .venv/bin/python -m pip install --quiet --editable '.[tfx,test]'
}

# What .venv was made from: where it lies (its scripts hold absolute paths), what with, and its interpreter.
state() {
    pwd
    cksum setup.py pyproject.toml scripts/setup.sh
    .venv/bin/python --version
}

up_to_date() { [ -f .venv/finished ] && [ "$(cat .venv/finished)" = "$(state 2>&1)" ]; }

case ${1:-} in
"")
    exec 9<setup.py && flock 9 # `make run` and `make test` started together: the second waits, then has nothing to do
    up_to_date && exit
    choose_stack
    require_build_tools
    echo "Setting up .venv: $stack on $python. This takes one to six minutes and 3 GB, once."
    make_environment
    ;;
--which)
    choose_stack
    echo "$stack on $python"
    ;;
--python)
    find_python "$2" || download_python_with_uv "$2" || no_python "$2"
    echo "$python"
    ;;
*)
    echo "usage: scripts/setup.sh [--which | --python VERSION]" >&2
    exit 2
    ;;
esac
