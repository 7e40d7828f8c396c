#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# Reports of core-train: the profile, the plot of the losses, the confusion
# matrix.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0
data=$work/data

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"
# shellcheck source=tests/support/train.sh
. "$LIBCORE_SOURCE/tests/support/train.sh"

data_set idx_images "$data" 200 100

small() {
    "$train" --data "$data" --batch 10 "$@"
}

# 2 epochs of 20 steps: 20 steps are recorded after the first 10.
profiles() {
    small --epochs 2 --device "$1" --profile "$work/profile" || return
    cat "$work/profile/table.txt"
    [ "$(head -c 15 "$work/profile/report.html")" = '<!DOCTYPE html>' ] &&
        [ "$(tail -n 1 "$work/profile/report.html")" = '</html>' ] &&
        grep -q '^thread 1;step;' "$work/profile/stacks.txt" &&
        grep -E -q '^step \(range\) +20 ' "$work/profile/table.txt" &&
        grep -E -q '^evaluation \(range\) +1 ' "$work/profile/table.txt" &&
        grep -E -q '^linear backward +80 ' "$work/profile/table.txt" &&
        grep -q '"ph": "f", "name": "backward"' "$work/profile/trace.json"
}

parses() {
    if ! command -v python3; then
        echo "without python3 only the last line is checked"
        [ "$(tail -n 1 "$work/profile/trace.json")" = '}' ]
        return
    fi
    python3 -c 'import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
kinds = {event["ph"] for event in events}
assert {"X", "M", "s", "f"} <= kinds, kinds
for event in events:
    assert event["ph"] != "X" or event["dur"] >= 0, event' \
        "$work/profile/trace.json"
}

has_kernels() {
    grep -q '"cat": "kernel"' "$work/profile/trace.json" &&
        grep -q 'name": "memory sim"' "$work/profile/trace.json" &&
        grep -q 'sim stream 0' "$work/profile/report.html"
}

too_few() {
    if small --epochs 1 --steps 8 --profile "$work/few" 2>"$work/err"; then
        return 1
    fi
    cat "$work/err"
    grep -q 'nothing was recorded' "$work/err" && [ ! "$(ls "$work/few")" ]
}

# The weights are saved although the profile is empty.
too_few_are_saved() {
    rm -f "$work/weights"
    small --epochs 1 --steps 8 --profile "$work/few" --save "$work/weights" \
        >"$work/out" 2>"$work/err"
    got=$?
    cat "$work/out" "$work/err"
    [ $got = 1 ] && grep -q 'nothing was recorded' "$work/err" &&
        [ -s "$work/weights" ] && grep -q '^weights ' "$work/out"
}

# An epoch of one step, interrupted after the tenth step while recording: what
# was recorded so far is written.
interrupted() {
    rm -rf "$work/part" "$work/out" "$work/err"
    "$train" --data "$data" --model cnn --batch 200 --epochs 100000 --json \
        --profile "$work/part" --save "$work/stopped" \
        >"$work/out" 2>"$work/err" &
    pid=$!
    tries=0
    until [ "$(wc -l <"$work/out")" -ge 15 ]; do
        sleep 0.05
        tries=$((tries + 1))
        kill -0 $pid && [ $tries -lt 4000 ] || return
    done
    kill -INT $pid
    wait $pid
    got=$?
    cat "$work/err"
    [ $got = 130 ] && grep -q "profile in $work/part" "$work/err" &&
        [ -s "$work/part/report.html" ] && [ -s "$work/part/trace.json" ] &&
        [ -s "$work/stopped" ]
}

# refuses PATTERN ARGUMENT…: fails before the first epoch.
refuses() {
    pattern=$1
    shift
    if small --epochs 1 "$@" >"$work/out" 2>"$work/err"; then
        return 1
    fi
    cat "$work/out" "$work/err"
    grep -q "$pattern" "$work/err" && ! grep -q epoch "$work/out"
}

# Training finishes although a report cannot be written.
goes_on() {
    "$@" >"$work/out" 2>"$work/err"
    got=$?
    cat "$work/out" "$work/err"
    [ $got = 1 ] && grep -q 'training continues' "$work/err" &&
        grep -q '^weights ' "$work/out" && [ -s "$work/weights" ] &&
        ! grep -q -e '^losses drawn' -e '^profile in' "$work/out"
}

# A folder at the path of a report is detected only when it is written.
unwritten_profile() {
    mkdir -p "$work/kept/trace.json" || return
    goes_on small --epochs 2 --save "$work/weights" --profile "$work/kept"
}

unwritten_plot() {
    rm -f "$work/weights"
    mkdir "$work/picture.svg" || return
    goes_on small --epochs 2 --save "$work/weights" \
        --plot "$work/picture.svg"
}

draws() {
    small --epochs 3 --plot "$work/plot.svg" || return
    cat "$work/plot.svg"
    [ "$(grep -c '<circle' "$work/plot.svg")" = 6 ] &&
        [ "$(grep -c '<polyline' "$work/plot.svg")" = 2 ] &&
        [ "$(tail -n 1 "$work/plot.svg")" = '</svg>' ] &&
        [ ! -e "$work/plot.svg.new" ]
}

# 100 images with 10 of each class.
confuses() {
    small --epochs 1 --json >"$work/out" || return
    tail -n 1 "$work/out" | sed 's/.*"confusion": \[\[//; s/\]\].*//' |
        sed 's/\], \[/\n/g' >"$work/rows"
    cat "$work/rows"
    [ "$(grep -c , "$work/rows")" = 10 ] &&
        awk -F ', ' '{ sum = 0
            for (i = 1; i <= NF; i++) sum += $i
            if (NF != 10 || sum != 10) exit 1 }' "$work/rows"
}

# The share on the diagonal equals the accuracy.
agrees() {
    accuracy=$(tail -n 1 "$work/out" |
        sed 's/.*"test_accuracy": \([0-9.]*\).*/\1/')
    awk -F ', ' -v accuracy="$accuracy" '{ right += $NR }
        END { print right / 100, accuracy
              exit !(right / 100 - accuracy < 1e-9 &&
                     accuracy - right / 100 < 1e-9) }' "$work/rows"
}

# write_trace FILE: of the spans on standard input: category, name, process, thread,
# begin and duration in microseconds.
write_trace() {
    comma='{"ph": "M"}, '
    printf '{"traceEvents": ['
    while read -r kind called process thread ts dur; do
        printf '%s{"ph": "X", "name": "%s", "cat": "%s", "pid": %s, "tid": %s,' \
            "$comma" "$called" "$kind" "$process" "$thread"
        printf ' "ts": %s, "dur": %s}\n' "$ts" "$dur"
        comma=,
    done
    echo ']}'
} >"$1"

# A trace of two threads with two collectives of 100 us, of which 40 and 50 us are
# hidden: by operators of the other thread, nested or in succession; not by one of
# the collective's own thread, nor by events other than operators.  A third one of
# 50 us is in the thread that computes.
hides() {
    write_trace "$work/trace" <<'END' || return
operator mul 1 1 20 10
range reduce_scatter 1 2 200 100
operator add 1 1 10 20
range all_reduce 1 2 0 100
operator relu 1 1 30 10
operator div 1 2 70 20
backward linear 1 1 0 300
wait event 1 1 90 30
operator sum 1 1 50 10
operator mm 1 1 150 100
range step 1 1 0 300
range all_gather 1 1 250 50
END
    $hidden "$work/trace" --least 36 &&
        $hidden "$work/trace" --least 36.1 && return 1
    $hidden "$work/trace" >"$work/out"
    cat "$work/out"
    sed 's/, 0.*(/ (/' "$work/out" | cmp - "$work/expected"
}

# On a device with streams, kernels hide collectives, and operators, which only enqueue
# them, do not; nor does a copy.
hides_behind_kernels() {
    write_trace "$work/streams" <<'END' || return
range all_reduce 1 2 0 100
operator mul 1 1 0 100
kernel mul 100 0 40 20
kernel add 100 1 50 20
copy copy 100 2 70 30
END
    $hidden "$work/streams" --least 30 | grep '^1 all_reduce, .* (30.0 %) while a kernel'
}

has_no_collectives() {
    echo '{"traceEvents": []}' >"$work/empty"
    $hidden "$work/empty" 2>"$work/err"
    [ $? = 2 ] && grep 'has no collectives' "$work/err"
}

# Not the status of "less is hidden".
refuses_traces() {
    head -c 100 "$work/trace" >"$work/cut" &&
        echo '{"events": []}' >"$work/other" || return
    for trace in none cut other; do
        $hidden "$work/$trace" --least 45 2>"$work/err"
        [ $? = 2 ] && cat "$work/err" && [ "$(wc -l <"$work/err")" = 1 ] ||
            return
    done
}

ok 'a profile has four reports' profiles cpu
ok 'the trace is valid JSON' parses
ok 'the profile of a device with streams has four reports' profiles sim
ok 'trace and page contain kernels and memory of the device' has_kernels
ok 'too few steps are reported and no report is written' too_few
ok 'weights of too few steps are saved' too_few_are_saved
ok 'SIGINT writes what was recorded so far' interrupted
ok 'a profile folder that cannot be created is refused first' \
    refuses 'cannot create' --profile "$work/none/such"
: >"$work/file"
ok 'a file as profile folder is refused first' \
    refuses 'is not a folder' --profile "$work/file"
ok 'an unwritable report does not end training' unwritten_profile
ok 'an unwritable plot does not end training' unwritten_plot
ok 'the losses of each epoch are plotted' draws
ok 'an unwritable plot is refused before training' \
    refuses 'cannot write' --plot "$work/none/plot.svg"
ok 'the confusion matrix counts every image' confuses
ok 'the confusion matrix agrees with the accuracy' agrees
if command -v "${PYTHON:-python3}" >/dev/null; then
    hidden="${PYTHON:-python3} $LIBCORE_SOURCE/tools/hidden-communication"
    cat >"$work/expected" <<'END'
3 collectives (36.0 %) while another thread computes
1 all_gather (0.0 %) while another thread computes
1 all_reduce (40.0 %) while another thread computes
1 reduce_scatter (50.0 %) while another thread computes
END
    ok 'the hidden share of communication is that of a trace' hides
    ok 'on a device with streams kernels hide it' hides_behind_kernels
    ok 'a trace without collectives is refused' has_no_collectives
    ok 'a trace that is missing or cut off is refused' refuses_traces
else
    for what in 'the hidden share of communication' 'a hidden share by kernels' \
        'a trace without collectives' 'a trace that is refused'; do
        number=$((number + 1))
        echo "ok $number - $what # SKIP no python3"
    done
fi
echo "1..$number"
