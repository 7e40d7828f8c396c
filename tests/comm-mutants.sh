#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# Tests the tests of collectives: core-conformance --collectives detects each of the
# faults that the fixture "sockets" can have (SOCKETS_MUTANT), with a message that
# says which.

work=$(mktemp -d "${TMPDIR:-/tmp}/libcore-comm-XXXXXX")
trap 'rm -rf "$work"' EXIT
number=0

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

plugin=$LIBCORE_BUILD/tests/fixtures/.libs/core_sockets.so

# core-conformance ends a test that does not end; all of them may take longer.
conforms() { # ARGUMENT...
    timeout -k 5 600 "$LIBCORE_BUILD/core-conformance" --collectives 3 \
        --plugin "$plugin" "$@" >"$work/out" 2>&1 </dev/null
}

# A test fails with the text.
is_detected() { # MUTANT TEST TEXT [SECONDS]
    ! SOCKETS_MUTANT=$1 conforms --timeout "${4:-30}" --filter "collectives/$2" &&
        grep "^# .*$3" "$work/out" && grep '1 failed' "$work/out"
}

# The test passes, with a remark.
is_remarked() { # MUTANT TEST TEXT
    SOCKETS_MUTANT=$1 conforms --timeout 20 --filter "collectives/$2" &&
        grep "^# .*$3" "$work/out"
}

# The test passes, and the error has named the rank.
is_named() { # MUTANT TEST
    SOCKETS_MUTANT=$1 conforms --timeout 20 --filter "collectives/$2" &&
        ! grep '^# rank' "$work/out"
}

# The test is skipped, with the reason.
is_skipped() { # REGISTERED TEST TEXT
    SOCKETS_REGISTERS=$1 conforms --timeout 10 --filter "collectives/$2" &&
        grep "^ok 1 - collectives/$2 # SKIP .*$3" "$work/out"
}

passes_all() {
    mkdir "$work/ranks" || return
    TMPDIR=$work/ranks conforms "$@" && grep '^1..26$' "$work/out" &&
        ! grep '^not ok' "$work/out" && ! grep '^# rank' "$work/out" &&
        rmdir "$work/ranks"
}

# Every reduction has results that every dtype has.
sixteen_pass() {
    conforms --collectives 16 --filter \
        'collectives/*reduce,*scatter,*averages' &&
        grep '^# 4 passed, 0 failed, with 16 ranks' "$work/out"
}

# On SIGTERM the ranks end, and no file is left.
ends_on_a_signal() {
    mkdir "$work/signal" || return
    ! TMPDIR=$work/signal SOCKETS_MUTANT=hangs \
        timeout -k 20 2 "$LIBCORE_BUILD/core-conformance" --collectives 3 \
        --plugin "$plugin" --filter '*ends-a-coll*' >"$work/out" 2>&1 &&
        cat "$work/out" && ! grep -e '^ok' -e '^not ok' "$work/out" &&
        rmdir "$work/signal"
}

streams_pass() {
    conforms --device sim --timeout 20 --filter \
        'collectives/all_reduce,*streams,*late-ranks,*barrier,*ends-a-coll*' &&
        grep '^# 5 passed, 0 failed' "$work/out"
}

# An engine that moves the memory of its plugin's device, and has run_group.
with_device() { # TEST ARGUMENT...
    conforms --filter "collectives/$1" --device sockets --timeout 10 \
        --plugin "$LIBCORE_BUILD/tests/fixtures/.libs/core_sockets_device.so"
}

groups_pass() {
    with_device 'groups,*reduce,*split' &&
        grep '^# 4 passed, 0 failed' "$work/out"
}

# The group fails: an element is wrong, or a call waits for one that is not made.
group_is_detected() { # MUTANT
    ! SOCKETS_MUTANT=$1 with_device groups &&
        grep '^# .*a group of all_gather.*of f32: ' "$work/out" &&
        grep '1 failed' "$work/out"
}

# Waits at most a minute until a file has a name of that pattern.
await() { # PATTERN
    tries=0
    # shellcheck disable=SC2086 # a pattern
    until ls $1 >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ $tries -lt 1200 ] || return 1
        sleep 0.05
    done
}

# A signal that the process ignores does not end the test.
ignores_a_signal() {
    mkdir "$work/ignored" || return
    (
        trap '' TERM
        TMPDIR=$work/ignored SOCKETS_MUTANT=hangs exec \
            "$LIBCORE_BUILD/core-conformance" --collectives 3 --timeout 10 \
            --plugin "$plugin" --filter '*missing-rank-ends-a-coll*'
    ) >"$work/out" 2>&1 </dev/null &
    process=$!
    await "$work/ignored/*/store" && kill "$process"
    wait "$process"
    cat "$work/out"
    grep '^# 0 passed, 1 failed' "$work/out" && rmdir "$work/ignored"
}

# A rank as it is started by a launcher that sets these two variables.
start_rank() { # NUMBER RANK SIZE ARGUMENT...
    this=$1 rank=$2 size=$3
    shift 3
    (
        trap '' HUP
        exec env -u OMPI_COMM_WORLD_RANK -u PMI_RANK -u SLURM_PROCID -u RANK \
            "$rank=$this" "$size=3" TMPDIR="$work/launched" \
            "$LIBCORE_BUILD/core-conformance" --plugin "$plugin" "$@"
    ) >"$work/out.$this" 2>&1 </dev/null &
}

# The ranks find each other by a port that no other program uses.
is_launched_by() { # RANK SIZE
    python=${PYTHON:-python3}
    MASTER_ADDR=127.0.0.1 MASTER_PORT=$("$python" -c '
import socket
probe = socket.socket()
probe.bind(("127.0.0.1", 0))
print(probe.getsockname()[1])') || return
    export MASTER_ADDR MASTER_PORT
    mkdir -p "$work/launched" || return
    set -- "$@" --collectives 3 --filter 'collectives/all_reduce,*split'
    start_rank 0 "$@"
    processes=$!
    # Rank 0 has a file and ignores the signal, as it did before.
    await "$work/launched/*" && kill -HUP "$processes" || return
    for r in 1 2; do
        start_rank $r "$@"
        processes="$processes $!"
    done
    result=0
    for process in $processes; do
        wait "$process" || result=1
    done
    cat "$work"/out.[012]
    [ $result = 0 ] && [ ! -s "$work/out.1" ] && [ ! -s "$work/out.2" ] &&
        grep '^# 2 passed, 0 failed, with 3 ranks on cpu' "$work/out.0" &&
        rmdir "$work/launched"
}

refuses() { # TEXT ARGUMENT...
    text=$1
    shift
    conforms "$@"
    [ $? = 2 ] && grep "$text" "$work/out"
}

ok 'without a fault, all tests pass, and no file is left' passes_all --timeout 20
ok "and on a device that has streams" streams_pass
ok 'and in groups that the engine runs at once' groups_pass
ok 'and reductions of 16 ranks' sixteen_pass
ok 'a signal ends all ranks' ends_on_a_signal
ok 'a signal that is ignored ends nothing' ignores_a_signal
while read -r mutant test text; do
    ok "$mutant" is_detected "$mutant" "$test" "$text"
done <<'END'
reorders all_gather all_gather of 12 f64: element 0 is 2, not 4
drops all_reduce all_reduce, sum in f64: element 0 is 6, not 8
returns-early waits-for-late-ranks broadcast of 12 f32 from rank [012]: element
forgets-root broadcast broadcast of 12 f64 from rank 1: element
mixes-parts reduce_scatter reduce_scatter, sum in f64: element
misses-root reduce reduce, sum in f64: element
swaps-parts all_to_all_rows all_to_all_rows in f64: element
skips-barrier barrier barrier: it returned before all ranks had called it
sums-averages averages all_reduce, avg in f64: element 0 is 15, not 5
rotates ranks-have-equal-bits the sums of ranks 0 and 1 have different bits
loses send_recv core_send_recv of 12 f64: element
one-comm split core_comm_split, and all_reduce in each part: element
closes-first several-communicators all_gather of 12 f32: .*ended
skips-small all_reduce all_reduce, sum in f64: element 0 is
cuts-large many-elements all_reduce of 300007 f32: element 262144
exits barrier barrier: the process ended, with status 0
END
for mutant in drops-call reverses-calls leaves-group; do
    ok "$mutant" group_is_detected "$mutant"
done
# The processes are waited for.
ok 'ignores-abort' is_detected ignores-abort abort-ends-own-call \
    'barrier that no other rank calls: core_comm_abort in another thread did not' \
    10
ok 'hangs' is_detected hangs missing-rank-ends-a-collective \
    'barrier that rank 2 does not make: it hangs' 10
ok 'crashes, and the other ranks hang' is_detected crashes barrier \
    'rank 2 of 3: barrier: it was ended by signal' 10
ok 'rounds' is_remarked rounds halves-are-rounded-once 'the sum is 3, .* 3.01562'
ok 'nameless' is_remarked nameless missing-rank-is-an-error 'does not name rank 2'
ok 'says-late' is_named says-late missing-rank-is-an-error

# What an engine need not have is skipped.
ok 'without an abort' is_skipped 'no abort' abort-ends-own-call \
    'the engine cannot end calls that have begun'
ok 'without sums' is_skipped 'no sum' split 'cannot reduce f32'
ok 'without sums between kernels' is_skipped 'no sum' order-on-streams \
    'cannot reduce f32'

# Every test would fail of the same cause.
needs_callbacks() (
    LIBCORE_PLUGIN_PATH=$LIBCORE_BUILD/.libs:$LIBCORE_BUILD/tests/fixtures/mutants/.libs
    LIBCORE_MUTANT_LACKS=core.host_callback
    export LIBCORE_PLUGIN_PATH LIBCORE_MUTANT_LACKS
    refuses 'has streams, but not both host callbacks and' --device mutant
)
moves_own_memory() (
    SOCKETS_REGISTERS='device memory'
    export SOCKETS_REGISTERS
    refuses 'moves the memory of its own plugin'
)
ok 'a device that cannot run collectives is refused' needs_callbacks
ok "a device of another plugin is refused" moves_own_memory
ok 'a filter that matches nothing is refused' refuses 'no test: x' --filter x
ok 'an unknown engine is refused' refuses 'has no engine carrier-pigeon' \
    --engine carrier-pigeon
ok 'an unknown device is refused' refuses 'no device "nope"' --device nope
ok 'an unknown flag is refused' refuses 'with --collectives: --seed' --seed 1
ok 'a number of ranks is checked' refuses '17; accepted .*: 2 to 16' \
    --collectives 17
ok 'the timeout is checked' refuses '9; accepted .*: 10 to ' --timeout 9
ok 'a plugin without an engine is refused' refuses 'has no engine (core.coll' \
    --plugin "$LIBCORE_BUILD/.libs/core_sim.so"

# Processes with the variables that srun and torchrun set.
if "${PYTHON:-python3}" -c 'import socket' 2>/dev/null; then
    ok 'ranks that srun has started' is_launched_by SLURM_PROCID SLURM_NTASKS
    ok 'ranks that torchrun has started' is_launched_by RANK WORLD_SIZE
else
    number=$((number + 1))
    echo "ok $number - ranks of a launcher # SKIP no python3, which finds a port"
fi

started_another_number() (
    RANK=1 WORLD_SIZE=5
    export RANK WORLD_SIZE
    refuses 'the launcher has started 5 processes'
)
has_no_port() (
    RANK=1 WORLD_SIZE=3
    export RANK WORLD_SIZE
    unset MASTER_ADDR MASTER_PORT
    ! conforms --timeout 10 && cat "$work/out" &&
        grep 'rank 1: core_comm_create: .*MASTER_ADDR and MASTER_PORT are not' \
            "$work/out"
)
ok 'a launcher that has started another number is refused' started_another_number
ok 'a launcher that names no port is refused' has_no_port

echo "1..$number"
