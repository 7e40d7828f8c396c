#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# Collectives through plugins/mpi, with each MPI that is installed, and through
# the fixture "sockets"; ranks that are killed, stop, leave or differ.

ranks=$LIBCORE_BUILD/tests/comm_ranks
LIBCORE_PLUGIN_PATH=$LIBCORE_BUILD/.libs:$LIBCORE_BUILD/plugins/mpi/.libs
export LIBCORE_PLUGIN_PATH
work=$(mktemp -d "${TMPDIR:-/tmp}/libcore-mpi-XXXXXX")
trap 'rm -rf "$work"' EXIT
# What an MPI library leaves of a job that is ended is removed, too.
export TMPDIR="$work" OMPI_MCA_btl_vader_backing_directory="$work"
number=0

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

if [ ! -x "$ranks" ]; then
    echo "1..0 # SKIP comm_ranks is not built"
    exit 0
fi

# Fails after 60 seconds, and ends what is left 5 seconds later.
limited() { timeout -k 5 60 "$@" </dev/null; }

launch() { # MPI ARGUMENT...
    mpi=$1
    shift
    case $mpi in
    openmpi)
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
            limited mpirun.openmpi --oversubscribe -n 3 "$ranks" mpi "$@"
        ;;
    mpich) limited mpirun.mpich -disable-auto-cleanup -n 3 "$ranks" mpi "$@" ;;
    sockets)
        limited "$ranks" sockets "$@" 3 \
            "$LIBCORE_BUILD/tests/fixtures/.libs/core_sockets.so"
        ;;
    esac
}

present() { # MPI
    [ "$1" = sockets ] && return 0
    [ -e "$LIBCORE_BUILD/plugins/mpi/.libs/core_$1.so" ] &&
        command -v "mpirun.$1" >/dev/null
}

fault() { # MPI FAULT TEXT: both other ranks report the text
    launch "$1" cpu "$2" >"$work/out" 2>&1
    [ "$(grep '^error' "$work/out" | grep -c "$3")" -ge 2 ]
}

ends() { # MPI: a killed rank ends the job, before the watchdog of launch does
    launch "$1" cpu kill >"$work/out" 2>&1
    [ $? -ne 124 ]
}

for mpi in sockets openmpi mpich; do
    if ! present "$mpi"; then
        number=$((number + 1))
        echo "ok $number - collectives of $mpi # SKIP it is not installed"
        continue
    fi
    for device in cpu sim; do
        ok "$mpi, $device: every collective, dtype and reduction" \
            launch "$mpi" "$device" results
    done
    ok "$mpi: another size is an error that names rank and collective" \
        fault "$mpi" size 'collective 2.*rank 2 broadcast of 13 f32'
    ok "$mpi: another order is an error that names rank and collective" \
        fault "$mpi" order 'collective 2.*rank 2 barrier'
    ok "$mpi: a rank that stops is named after the timeout" \
        fault "$mpi" stop 'collective 2.*waiting for rank 2'
    ok "$mpi: a rank that leaves is named" \
        fault "$mpi" leave 'collective 2.*rank 2'
    ok "$mpi: a rank that cancels a backward is named" \
        fault "$mpi" cancel 'all_reduce(avg).*rank 2 has failed'
    ok "$mpi: a rank that aborts is named" \
        fault "$mpi" abort 'collective 2.*rank 2'
    ok "$mpi: a rank that stops is named if the calls are not compared" \
        fault "$mpi" unchecked 'collective 2.*rank 2'
    ok "$mpi: a child of fork can exit" launch "$mpi" cpu fork
    ok "$mpi: a killed rank ends the job" ends "$mpi"
    [ "$mpi" = sockets ] || ok "$mpi: creation ends by its timeout" \
        fault "$mpi" absent 'before all ranks created the communicator'
done

echo "1..$number"
