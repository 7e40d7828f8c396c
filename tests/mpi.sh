#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# Collectives through plugins/mpi, with each MPI that is installed, and through
# the fixture "sockets"; ranks that are killed, stop, leave or differ; the tests of
# core-conformance in the processes of a launcher.

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

# Fails after so many seconds, and ends what is left 5 seconds later.
seconds=60
limited() { timeout -k 5 "$seconds" "$@" </dev/null; }

# MPI libraries leave memory when they end, which sanitizers report.
leaks=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0

processes=3
start() { # MPI PROGRAM ARGUMENT...: so many ranks
    mpi=$1
    shift
    case $mpi in
    openmpi)
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
            ASAN_OPTIONS="$leaks" limited mpirun.openmpi --oversubscribe \
            ${recovery:+"$recovery"} -n "$processes" "$@"
        ;;
    mpich)
        ASAN_OPTIONS="$leaks" limited mpirun.mpich -disable-auto-cleanup \
            -n "$processes" "$@"
        ;;
    esac
}

launch() { # MPI ARGUMENT...
    mpi=$1
    shift
    case $mpi in
    openmpi | mpich) start "$mpi" "$ranks" mpi "$@" ;;
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

# goes_on MPI TEST: the two ranks that are left make a communicator, in which
# everything works.
recovery=
goes_on() {
    recovery=--enable-recovery
    launch "$1" cpu "$2" >"$work/out" 2>&1
    recovery=
    cat "$work/out"
    [ "$(grep -c '^rank [01] of 2 goes on' "$work/out")" = 2 ] || return
    [ "$2" != shrink ] || grep -q '^rank 2 of 3 does not go on' "$work/out"
}

# Engines treat few and many ranks differently.
on() { # RANKS MPI TEST
    processes=$1
    shift
    launch "$@"
    result=$?
    processes=3
    return $result
}

four_go_on() { # MPI
    recovery=--enable-recovery
    on 5 "$1" cpu shrink-killed >"$work/out" 2>&1
    recovery=
    cat "$work/out"
    [ "$(grep -c '^rank [0-3] of 4 goes on' "$work/out")" = 4 ]
}

# One rank of three does not go on alone.
stays_alone() { # MPI
    recovery=--enable-recovery
    launch "$1" cpu shrink-alone >"$work/out" 2>&1
    recovery=
    cat "$work/out"
    [ "$(grep -c '^error: core_comm_shrink: .* 1 of 3 ranks' "$work/out")" = 2 ] &&
        grep -q '^rank 2 of 3 does not go on' "$work/out"
}

# core-conformance ends a test that does not end; all of them may take longer.
conforms() { # MPI ARGUMENT...
    mpi=$1 seconds=600
    shift
    start "$mpi" "$LIBCORE_BUILD/core-conformance" --collectives 3 \
        --plugin "$LIBCORE_BUILD/plugins/mpi/.libs/core_$mpi.so" "$@" \
        >"$work/out" 2>&1
    status=$? seconds=60
    cat "$work/out"
    return $status
}

# MPICH's ranks wait without a pause: of them, a few tests.  No file is left.
conforms_on_all_ranks() { # MPI
    filter='*' count=20
    [ "$1" = openmpi ] || filter='collectives/all_reduce,*split' count=2
    mkdir "$work/ranks" &&
        TMPDIR=$work/ranks conforms "$1" --filter "$filter" &&
        grep "^# $count passed, 0 failed, with 3 ranks on cpu" "$work/out" &&
        rm -rf "$work/ranks/openmpi"* && rmdir "$work/ranks"
}

# The launcher may report the ranks, which do not end as it wants.
names_the_missing() { # MPI
    conforms "$1" --timeout 20 --filter '*missing-rank-is-an-error'
    grep '^# 1 passed, 0 failed' "$work/out" && ! grep '^# rank' "$work/out"
}

refuses_another_number() { # MPI
    ! conforms "$1" --collectives 2 &&
        grep 'the launcher has started 3 processes' "$work/out"
}

# An engine that knows no launcher, and two tests after which nothing works.
refuses_what_it_cannot_test() { # MPI
    ! conforms "$1" --filter '*missing*' &&
        grep 'choose one of them by --filter' "$work/out" &&
        ! conforms "$1" --plugin \
            "$LIBCORE_BUILD/tests/fixtures/.libs/core_sockets.so" &&
        grep 'meet in a store is tested without a launcher' "$work/out"
}

# The last rank's plugin has another version in its note, after the vendor's name, of
# 64 bytes.  All ranks say which; a timeout would be another error.
names_versions() { # MPI
    mkdir -p "$work/other" &&
        LC_ALL=C sed 's/\(libcore\x00\{57\}\)0\.1\x00/\19.5\x00/' \
            <"$LIBCORE_BUILD/plugins/mpi/.libs/core_$1.so" \
            >"$work/other/core_$1.so" &&
        "$LIBCORE_BUILD/core-info" --seal "$work/other/core_$1.so" || return
    # shellcheck disable=SC2016 # of that shell
    start "$1" sh -c '
        [ "${PMI_RANK-$OMPI_COMM_WORLD_RANK}" != 2 ] ||
            LIBCORE_PLUGIN_PATH=$LIBCORE_BUILD/.libs:$0
        exec "$@"' "$work/other" "$ranks" mpi cpu versions >"$work/out" 2>&1 &&
        cat "$work/out" &&
        [ "$(grep -c "^error: core_comm_create: rank 0 has .*, mpi of $1 0.1, rank 2 has .* $1 9.5;" \
            "$work/out")" = 3 ]
}

by_messages() { # COMMAND...: of MPI, also on one machine
    (
        export LIBCORE_MPI_SHARED=off
        "$@"
    )
}

reports_memory() { # TEXT: all ranks do
    cat "$work/out"
    [ "$(grep -c "^memory is $1\$" "$work/out")" = 3 ]
}

# Ranks share memory, except if one of them cannot.
shares() { # MPI
    launch "$1" cpu shared >"$work/out" 2>&1 && reports_memory shared || return
    # shellcheck disable=SC2016 # of that shell
    start "$1" sh -c '
        [ "${PMI_RANK-$OMPI_COMM_WORLD_RANK}" != 2 ] ||
            export LIBCORE_MPI_SHARED=off
        exec "$0" mpi cpu shared' "$ranks" >"$work/out" 2>&1 &&
        reports_memory 'not shared'
}

# A misspelt setting, with which the plugin is not used.
refuses_setting() { # title of the MPI
    LIBCORE_MPI_SHARED=no "$LIBCORE_BUILD/core-info" >"$work/out" 2>&1
    grep -q "$1: LIBCORE_MPI_SHARED is \"no\"; accepted: on (or 1) and off" \
        "$work/out"
}

for mpi in sockets openmpi mpich; do
    if ! present "$mpi"; then
        number=$((number + 1))
        echo "ok $number - collectives of $mpi # SKIP it is not installed"
        continue
    fi
    ok "$mpi, sim: every collective, dtype and reduction" \
        launch "$mpi" sim results
    if [ "$mpi" = sockets ]; then
        ok "$mpi, cpu: the same" launch "$mpi" cpu results
    else
        ok "$mpi, cpu: it conforms" conforms_on_all_ranks "$mpi"
        ok "$mpi, cpu: two ranks have the same results" \
            on 2 "$mpi" cpu results
        ok "$mpi, cpu: five ranks have the same results" \
            on 5 "$mpi" cpu results
        ok "$mpi, cpu: sums of 32 MB" launch "$mpi" cpu large
        ok "$mpi: ranks on one machine share memory" shares "$mpi"
        ok "$mpi, cpu: two ranks have the same results by messages" \
            by_messages on 2 "$mpi" cpu results
        ok "$mpi, cpu: sums of 32 MB by messages" \
            by_messages launch "$mpi" cpu large
        ok "$mpi: a setting that does not exist is refused" refuses_setting \
            "$(echo "$mpi" | sed 's/openmpi/Open MPI/; s/mpich/MPICH/')"
        ok "$mpi: sums of different sizes are an error by messages" \
            by_messages fault "$mpi" sum-size \
            'rank 2 all_reduce(sum) of 1001 f32'
        ok "$mpi: another call than a sum is an error by messages" \
            by_messages fault "$mpi" sum-order 'rank 2 barrier'
        ok "$mpi: a rank that leaves is named by messages" \
            by_messages fault "$mpi" leave 'collective 2.*rank 2'
        ok "$mpi: a rank that stops in a large sum is named" \
            fault "$mpi" unchecked-sum 'collective 2.*rank 2'
        ok "$mpi: conformance needs as many ranks as it says" \
            refuses_another_number "$mpi"
    fi
    ok "$mpi: another size is an error that names rank and collective" \
        fault "$mpi" size 'collective 2.*rank 2 broadcast of 13 f32'
    ok "$mpi: another order is an error that names rank and collective" \
        fault "$mpi" order 'collective 2.*rank 2 barrier'
    ok "$mpi: sums of different sizes are an error" \
        fault "$mpi" sum-size 'rank 2 all_reduce(sum) of 1001 f32'
    ok "$mpi: another call than a sum is an error" \
        fault "$mpi" sum-order 'rank 2 barrier'
    [ "$mpi" != openmpi ] || ok "$mpi: what cannot be tested is refused" \
        refuses_what_it_cannot_test "$mpi"
    if [ "$mpi" = mpich ]; then
        ok "$mpi: the tests name a missing rank" names_the_missing "$mpi"
    else
        ok "$mpi: a rank that stops is named after the timeout" \
            fault "$mpi" stop 'collective 2.*waiting for rank 2'
    fi
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
    case $mpi in # mpirun of MPICH ends the others, too
    openmpi)
        ok "$mpi: the others go on without a killed rank" \
            goes_on "$mpi" shrink-killed
        ok "$mpi: four of five go on without a killed rank" four_go_on "$mpi"
        ok "$mpi: ranks that notice it later go on, too" \
            goes_on "$mpi" shrink-late
        ok "$mpi: ranks that wait on different communicators go on, too" \
            goes_on "$mpi" shrink-apart
        ok "$mpi: a rank that continues does not go on alone" \
            goes_on "$mpi" shrink
        ok "$mpi: a rank that is left alone does not go on" \
            stays_alone "$mpi" ;;
    mpich) ok "$mpi: the others go on without a rank that stops" \
        goes_on "$mpi" shrink ;;
    esac
    [ "$mpi" = sockets ] || ok "$mpi: another version of the plugin is named" \
        names_versions "$mpi"
    [ "$mpi" = sockets ] || ok "$mpi: creation ends by its timeout" \
        fault "$mpi" absent 'before all ranks created the communicator'
done

echo "1..$number"
