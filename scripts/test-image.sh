#!/bin/sh
# Builds the image of a new project with `infeed build` on a real Debian 13, and runs the test suite inside it: TFX 1.21 on
# Python 3.13, whatever the stack of this checkout is. Then the project is compiled, and rehearsed in its image.
#
#   scripts/test-image.sh [PYTEST ARGUMENT...]
#
# Exit status: 0 the tests passed; 1 they did not, or the image could not be built; 77 this machine
# cannot make such an image, and nothing was tested.
#
# With docker or podman it is built on their debian:trixie-slim. Where no engine works, root on Debian or Ubuntu gets
# buildah, and where no registry answers, a base image made by debootstrap from the machine's own mirror. What buildah
# keeps between runs is in one folder, which may be removed at any time.
set -eu
cd "$(dirname "$0")/.."

python=.venv/bin/python
image=localhost/tfx-infeed:test
suite=localhost/tfx-infeed-suite:test
registry_base=docker.io/library/debian:trixie-slim
made_base=localhost/debian:trixie
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tfx-infeed
scratch=$(mktemp -d)
container=""

say() { printf '%s  %s\n' "$(date +%H:%M:%S)" "$*"; }

# The one way out that is neither passed nor failed; nobody must take it for either.
cannot() {
    {
        echo "########################################################################"
        echo "#  THE IMAGE WAS NOT TESTED. This machine cannot make it:"
        echo "#  $1"
        echo "#  Do: $2"
        echo "########################################################################"
    } >&2
    exit 77
}

clean_up() {
    status=$?
    trap - EXIT
    if [ -n "$container" ]; then buildah rm "$container" >/dev/null; fi
    if [ -n "${engine:-}" ]; then "$engine" rmi "$suite" >/dev/null 2>&1 || true; fi
    for mounted in proc sys; do umount "$scratch/root/$mounted" 2>/dev/null || true; done
    rm -rf --one-file-system "$scratch"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Sets `engine` to the one that `infeed build` takes.
choose_engine() {
    engine=$(working_engine) && return
    is_root || cannot "no container engine works, and only root can install one" "start docker, or run this as root"
    apt_install buildah || cannot "no container engine works, and buildah cannot be installed" "install docker or podman"
    engine=$(working_engine) || cannot "buildah is installed and does not work" "see what \`buildah info\` says"
}

working_engine() {
    "$python" -c 'from infeed.pipelines.cluster.containers import find_engine; print(find_engine().name)' 2>/dev/null
}

is_root() { [ "$(id -u)" = 0 ]; }

apt_install() {
    command -v apt-get >/dev/null || return
    say "installing $*"
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends "$@"; } \
        >"$scratch/apt.log" 2>&1 || { tail -n 3 "$scratch/apt.log" >&2 && return 1; }
}

# A store of our own for buildah: kept for the next run, and made anew when what is in its large layers has changed.
open_store() {
    key=$(cat templates/Dockerfile pipelines/cluster/image/requirements.txt | cksum | tr ' ' -)
    mkdir -p "$cache/$key"
    find "$cache" -mindepth 1 -maxdepth 1 -name '[0-9]*-[0-9]*' ! -name "$key" -exec rm -rf --one-file-system {} +
    for driver in overlay vfs; do # vfs copies each layer whole, and works everywhere
        write_storage_settings "$driver"
        if container=$(buildah from --quiet scratch 2>/dev/null) && buildah mount "$container" >/dev/null 2>&1; then
            buildah rm --all >/dev/null # what a run that was killed has left, too
            container=""
            return
        fi
    done
    cannot "buildah cannot store images, neither with overlay nor with vfs" "see what \`buildah from scratch\` says"
}

write_storage_settings() {
    export CONTAINERS_STORAGE_CONF="$cache/$key/storage.conf"
    printf '[storage]\ndriver = "%s"\ngraphroot = "%s"\nrunroot = "%s"\n' \
        "$1" "$cache/$key/$1" "$scratch/run-$1" >"$CONTAINERS_STORAGE_CONF"
}

enough_disk() {
    needed=15
    if [ "${driver:-overlay}" = vfs ]; then needed=60; fi
    free=$(($(df -Pk "$cache" | awk 'END { print $4 }') / 1024 / 1024))
    [ "$free" -ge "$needed" ] || cannot "$free GB are free, and the build takes up to $needed" "make room in $cache"
}

# Sets `base` to an image that is on this machine.
choose_base() {
    base=$registry_base
    timeout 120 "$engine" pull "$base" >/dev/null 2>&1 && return
    base=$made_base
    [ "$engine" = buildah ] ||
        cannot "$registry_base cannot be pulled" "see to the network, or to a mirror of docker.io for $engine"
    [ -z "$(buildah images --quiet --filter "reference=$made_base" 2>/dev/null)" ] || return 0
    make_base
}

make_base() {
    is_root || cannot "$registry_base cannot be pulled, and only root can make a Debian 13" "run this as root"
    command -v debootstrap >/dev/null || apt_install debootstrap debian-archive-keyring ||
        cannot "$registry_base cannot be pulled, and debootstrap cannot be installed" "apt-get install debootstrap"
    say "making a Debian 13 from $(mirror), about two minutes, once"
    debootstrap --variant=minbase trixie "$scratch/root" "$(mirror)" >"$scratch/debootstrap.log" 2>&1 || {
        tail -n 3 "$scratch/debootstrap.log" >&2
        cannot "debootstrap failed" "see that $(mirror) answers and has trixie, and that root may mount and chroot here"
    }
    tar --create --one-file-system --directory "$scratch/root" --file "$scratch/root.tar" .
    rm -rf --one-file-system "$scratch/root"
    container=$(buildah from --quiet scratch)
    buildah add --quiet "$container" "$scratch/root.tar" / >/dev/null
    rm "$scratch/root.tar"
    buildah run --isolation chroot "$container" -- true ||
        cannot "buildah cannot run anything, not even with chroot isolation" "try a machine that allows more"
    buildah commit --quiet --rm "$container" "$made_base" >/dev/null
    container=""
}

# The Debian archive that apt uses here, in either of apt's formats.
mirror() {
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list 2>/dev/null |
        sed -n -e 's|^URIs: *\(http[^ ]*/debian\)/*\( .*\)*$|\1|p' -e 's|^deb .*\(http[^ ]*/debian\)/* .*|\1|p' |
        grep . | head -n 1 | grep . || echo http://deb.debian.org/debian
}

# Taken before the package is: a checkout that is worked on must not give tests of what the image does not hold yet.
copy_tests() {
    mkdir "$scratch/suite"
    cp -r pyproject.toml setup.py README.md docs notebooks tests "$scratch/suite/"
    find "$scratch/suite" -name __pycache__ -prune -exec rm -rf {} +
}

# The tests on top of the image, in a layer that goes away again.
build_suite() {
    cat >"$scratch/suite/Dockerfile" <<-END
	FROM $image AS suite
	USER 0
	RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf --mount=type=secret,id=ca.crt,target=/run/secrets/ca.crt \\
	    pip freeze --exclude tfx-infeed >/tmp/stack.txt && \\
	    pip install --no-cache-dir --constraint /tmp/stack.txt "tfx-infeed[test]"
	COPY --chown=1000 . /home/app/suite
	WORKDIR /home/app/suite
	USER 1000
	END
    "$python" scripts/build_suite.py "$scratch/suite" "$suite" "$scratch"
}

# Runs a command as the image's own user, without the lock that processes it leaves behind would hold.
in_suite() {
    if [ "$engine" = buildah ]; then
        container=$(buildah from --quiet "$suite")
        # A name that resolves, as a pod's does: processes on JAX find each other by it.
        buildah run --isolation chroot --hostname localhost "$container" -- "$@" 9>&-
    else
        "$engine" run --rm --network host "$suite" "$@" 9>&-
    fi
}

# Whether the image holds the very code of this checkout, unless that was worked on meanwhile; tells what else it holds.
same_code() {
    changed=$(find components pipelines templates -name '*.py' -newer "$scratch/suite" 2>/dev/null | head -n 1)
    [ -z "$changed" ] || { say "$changed was changed meanwhile, so the code is not compared" && return; }
    .venv/bin/infeed doctor --image "$image" --json >"$scratch/findings.json" || true
    "$python" - "$scratch/findings.json" <<-'END'
	import json, sys
	about_the_image = [finding for finding in json.load(open(sys.argv[1])) if finding["purpose"] == "image"]
	for finding in about_the_image:
	    print(f"{finding['name']:<26}{finding['level']:<9}{finding['found']}")
	sys.exit(any(finding["level"] == "problem" for finding in about_the_image))
	END
}

mkdir -p "$cache"
exec 9>"$cache/lock" && flock 9
choose_engine
if [ "$engine" = buildah ] && is_root; then open_store; fi
enough_disk
choose_base
copy_tests
.venv/bin/infeed new tabular "$scratch/taxi" >/dev/null
say "building on $base with $engine"
former=$("$engine" images --quiet "$image" 2>/dev/null) || former=""
.venv/bin/infeed build "$scratch/taxi" --tag "$image" --base "$base" || { say "THE IMAGE CANNOT BE BUILT" && exit 1; }
# The one of the run before goes, unless nothing has changed since: then it is this one, by the same id.
built=$("$engine" images --quiet "$image")
if [ -n "$former" ] && [ "$former" != "$built" ]; then "$engine" rmi "$former" >/dev/null 2>&1 || true; fi
same_code || { say "THE IMAGE HOLDS OTHER CODE THAN THIS CHECKOUT" && exit 1; }
say "adding the tests"
build_suite || { say "THE TESTS CANNOT BE ADDED TO THE IMAGE" && exit 1; }
say "running the tests in the image"
# The quick tests, and of the long ones those that can differ by stack, and larger cases of what runs outside too
# (tests/test_stack.py). Tests of a checkout (set-up, pages, words, benchmarks) have no place in an image, and test_tfx.py
# starts it from outside. A test that hangs says where, and cannot hold up all.
in_suite sh -ec '
    suite="timeout 3000 python -m pytest --timeout 600 --timeout-method signal -o cache_dir=/tmp/pytest"
    stack() {
        $suite -m "not (frameworks or alone) and (stack or image or not (tfx or slow))" \
            --ignore tests/test_setup.py --ignore tests/test_setup_editable.py --ignore tests/test_docs.py \
            --ignore tests/test_docs_snippets.py --ignore tests/test_remedies.py --ignore tests/test_words.py \
            --ignore tests/test_mirror.py --ignore tests/test_stack.py --ignore tests/test_seams.py \
            --ignore tests/test_versions.py --ignore tests/scripts --ignore tests/benchmarks \
            --ignore tests/pipelines/cluster/rehearse/test_tfx.py \
            --deselect tests/components/seams/test_contracts.py::test_the_page_has_every_seam_as_it_is "$@"
    }
    # As in the Makefile, what failed runs again, alone.
    failed="--last-failed --last-failed-no-failures none"
    stack -n 3 --dist loadfile --no-loadscope-reorder "$@" || { [ $? -eq 1 ] && stack -n 0 $failed "$@"; }
    $suite -m alone || { [ $? -eq 1 ] && $suite -m alone $failed; }
' suite "$@" || { say "THE TESTS FAIL INSIDE THE IMAGE" && exit 1; }
say "rehearsing a compiled job in the image"
# From outside: every step of the job is a container of its own.
INFEED_TEST_IMAGE=$image timeout 1500 "$python" -m pytest -p no:cacheprovider tests/pipelines/cluster/rehearse/test_tfx.py 9>&- ||
    { say "A JOB COMPILED HERE DOES NOT RUN IN THE IMAGE" && exit 1; }
say "THE IMAGE WAS BUILT, THE TESTS PASS INSIDE IT, AND A COMPILED JOB RUNS IN IT"
