#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# Tests the conformance tests: a plugin that violates one rule fails the test of
# that rule, and the same plugin without the violation passes it.  The rules are
# listed in tests/fixtures/mutants/rules.txt.
conformance=$LIBCORE_BUILD/core-conformance
# The program itself starts faster than libtool's script.
if [ -x "$LIBCORE_BUILD/.libs/core-conformance" ]; then
    conformance=$LIBCORE_BUILD/.libs/core-conformance
    LD_LIBRARY_PATH=$LIBCORE_BUILD/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
fi
mutant=${MUTANT-$LIBCORE_BUILD/tests/fixtures/mutants/.libs/core_mutant.so}
rules=$LIBCORE_SOURCE/tests/fixtures/mutants/rules.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0
# Commands that remove the first device, and restore it.
LIBCORE_SIM_ABSENT=$work/absent
export LIBCORE_SIM_ABSENT
remove="echo 0 >$work/absent"
restore=": >$work/absent"
# Delays work, so that missing synchronization is detected reliably.
LIBCORE_SIM_DELAY_US=100
export LIBCORE_SIM_DELAY_US

delay=100
# Enables optional features of the device, and work without delay where it is
# repeated often and its order does not matter.
offer() { # test
    unset LIBCORE_SIM_ALLOCATOR LIBCORE_SIM_COMPILE LIBCORE_SIM_BYTES
    LIBCORE_SIM_DELAY_US=$delay
    case $1 in
    # Of which a few pages are used.
    ops/rules/offsets-*) export LIBCORE_SIM_BYTES=16000000000 ;;
    core/features/allocator*) export LIBCORE_SIM_ALLOCATOR=1 ;;
    stress/plans/*) export LIBCORE_SIM_COMPILE=1 ;;
    esac
    case $1 in
    *leak* | stress/blocks/* | stress/plans/*) LIBCORE_SIM_DELAY_US=0 ;;
    # Both streams work at once, also on a busy machine.
    ops/rules/workspaces-* | ops/rules/contexts-*) LIBCORE_SIM_DELAY_US=2000 ;;
    esac
}

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

# report NAME GOOD: prints one line of TAP.
report() {
    number=$((number + 1))
    if [ "$2" = yes ]; then
        echo "ok $number - $1"
    else
        echo "not ok $number - $1"
        print_reason "$work/out"
    fi
}

if [ ! -f "$mutant" ]; then
    echo "1..0 # SKIP the mutant was not built"
    exit 0
fi

# The first rule of each test, so that every test has failed; with
# LIBCORE_TEST_LONG all rules, more than twice as many.  LIBCORE_TEST_SHORT: only
# some, which show that all files are present.
sed -e 's/#.*//' -e '/^ *$/d' "$rules" >"$work/all_rules"
awk -v long="${LIBCORE_TEST_LONG-}" -v each="${LIBCORE_TEST_SHORT:+10}" \
    'each ? NR % each == 1 : long || !seen[$2]++' "$work/all_rules" \
    >"$work/rules"
# A test that hangs is ended soon, one that computes on a busy machine is not.
patience=600
newline='
'
tab=$(printf '\t')
# As core-conformance runs tests: glibc's caches of threads would look like leaks.
GLIBC_TUNABLES=glibc.malloc.tcache_count=0
export GLIBC_TUNABLES
# fails RULE TEST PATTERN: the same, in the process that runs the test alone.
# A test's result is a line `end`, its name, the verdict (1: FAIL), …, the message.
fails() {
    : >"$work/absent"
    echo "$2" | LIBCORE_MUTANT_RULE=$1 timeout $patience \
        "$conformance" --child-run --plugin "$mutant" --filter "$2" \
        --timeout $patience --open-budget $patience \
        3>"$work/out" >"$work/printed" 2>&1
    good=no
    grep -q "^end$tab$2${tab}1$tab" "$work/out" && good=yes
    # What does not fit into the message is in remarks.
    [ -z "$3" ] ||
        grep -qE "^(end$tab$2${tab}1$tab|remark$tab$2: ).*$3" "$work/out" ||
        good=no
}

# through_runner RULE TEST VERDICT PATTERN: the same, with the whole program.
through_runner() {
    timeout=$patience
    [ "$3" = TIMEOUT ] && timeout=5
    budget=600
    case $2 in core/opening/in-time | core/removal/*) budget=1 ;; esac
    : >"$work/absent"
    result=$(LIBCORE_MUTANT_RULE=$1 "$conformance" --plugin "$mutant" \
        --filter "$2" --timeout $timeout --open-budget $budget \
        --remove "$remove" --restore "$restore" 2>&1)
    status=$?
    good=no
    case $newline$result$newline in
    *"${newline}not ok 1 - $2 # $3$newline"*)
        [ $status = 1 ] && good=yes
        ;;
    esac
    if [ -n "$4" ]; then
        echo "$result" | grep -qE "^# $2: .*$4" || good=no
    fi
    [ $good = yes ] || echo "$result" >"$work/out"
}

# caught RULE TEST VERDICT WHERE [PATTERN]: the message matches PATTERN, an
# extended regular expression.
caught() {
    case ${3:-FAIL},$2 in
    FAIL,core/opening/* | FAIL,core/removal/* | FAIL,*/are-listed | [!F]*)
        through_runner "$1" "$2" "${3:-FAIL}" "${5-}"
        ;;
    *)
        fails "$1" "$2" "${5-}"
        ;;
    esac
    report "$1 is caught by $2$4" "$good"
}

# passed TEST WHERE
passed() {
    "$conformance" --plugin "$mutant" --filter "$1" --timeout $patience \
        --open-budget $patience >"$work/out" 2>&1
    status=$?
    good=no
    [ $status = 0 ] && grep -q "^ok 1 - $1\$" "$work/out" && good=yes
    report "$1 passes without the violation$2" $good
}

# all_pass WHERE: every test in $work/chosen passes, in one run.
all_pass() {
    : >"$work/absent"
    "$conformance" --plugin "$mutant" --filter "$(paste -sd , "$work/chosen")" \
        --timeout $patience --open-budget $patience --remove "$remove" \
        --restore "$restore" >"$work/log" 2>&1
    sed -n 's/^ok [0-9]* - //p' "$work/log" >"$work/good"
    while read -r name; do
        good=no
        grep -qxF "$name" "$work/good" && good=yes
        [ $good = yes ] || grep " $name" "$work/log" >"$work/out"
        report "$name passes without the violation$1" $good
    done <"$work/chosen"
}

# The message says what is wrong: what any wrong result would match does not.
awk '{
    pattern = $0
    sub(/^ *[^ ]+ +[^ ]+ +[^ ]+ */, "", pattern)
    if (length(pattern) < 8 ||
        "t:3: result 0, element 0: got 1, expected 2" ~ pattern ||
        "special values: result 0, element 7: got nan, expected 0" ~ pattern ||
        "random program 0, add f32(0,0,0): output 0, 0 bytes after" ~ pattern)
        print "no pattern, or that of any message: " $0
}' "$work/all_rules" >"$work/out"
good=yes
[ -s "$work/out" ] && good=no
report 'every rule says what the message must be' $good

while read -r rule name verdict pattern; do
    if [ "$rule" = changes-affinity ] && [ "$(nproc)" = 1 ]; then
        number=$((number + 1))
        echo "ok $number - $rule # SKIP the machine has one processor"
        continue
    fi
    offer "$name"
    caught "$rule" "$name" "$verdict" '' "$pattern"
done <"$work/rules"

# Without a rule the mutant is correct.  (Tests named `unreached`,
# `unchosen` and `composed` exist only where one is violated.)
sed -e 's/ *[^ ]* *\([^ ]*\).*/\1/' -e '/\/\(un\(reached\|chosen\)\|composed\)$/d' "$work/rules" |
    sort -u >"$work/names"

# What is offered differs.
grep '^core/features/allocator' "$work/names" >"$work/allocator"
grep '^stress/plans/' "$work/names" >"$work/plans"
grep -vxF -f "$work/allocator" -f "$work/plans" "$work/names" >"$work/others"
for kind in allocator plans others; do
    cp "$work/$kind" "$work/chosen"
    read -r name <"$work/chosen" || continue
    [ $kind = others ] && name=
    offer "$name"
    all_pass ''
done

# Device memory used by other programs is not a leak.
LIBCORE_MUTANT_RULE=other-processes-use-memory
export LIBCORE_MUTANT_RULE
for name in core/memory/no-leaks core/features/allocator \
    stress/blocks/freed-by-another-thread; do
    offer "$name"
    passed "$name" ', while other programs use memory'
done
# Neither is memory that they use when it is not reported.
LIBCORE_MUTANT_RULE=others-use-most-memory
offer core/memory/free-returns-memory
passed core/memory/free-returns-memory ', while others use most of the memory'
good=yes
grep -q 'core/memory/free-returns-memory: it was not tested' "$work/out" && good=no
report 'what other programs leave is tested' $good
# A stream that one kernel has failed does not fail the tests of others.
LIBCORE_MUTANT_RULE=work-of-exp-fails "$conformance" --plugin "$mutant" \
    --filter 'ops/[en][xe][pg]/f32' --timeout $patience >"$work/out" 2>&1
good=no
grep -q '^not ok [12] - ops/exp/f32 # FAIL' "$work/out" &&
    grep -q '^ok [12] - ops/neg/f32$' "$work/out" && good=yes
report 'work that fails is caught by the test of its kernel alone' $good
# What a kernel of copy_ does not claim is not tested.
LIBCORE_MUTANT_RULE=copies-equal-dtypes-only
passed ops/conversions/f32 ', while copies require equal dtypes'
LIBCORE_MUTANT_RULE=refuses-copies-to-bf16
passed ops/conversions/f32 ', while copies to bf16 are refused'
grep -q 'ops/conversions/f32: the kernel refuses [1-9][0-9]* of [1-9][0-9]* calls' \
    "$work/out" && good=yes || good=no
report 'refused conversions are counted' $good
# So are calls that no kernel computes.
LIBCORE_MUTANT_RULE=amax-is-missing
passed ops/rules/edge-cases ', without amax'
grep -q '^# ops/rules/edge-cases: 3 of [0-9]* calls were not tested, .*: amax of f32, amax of f64, max of f32$' \
    "$work/out" && good=yes || good=no
report 'edge cases without a kernel are counted' $good
passed ops/rules/offsets-beyond-2-gib ', without amax'
grep -q '^# ops/rules/offsets-beyond-2-gib: 2 of [0-9]* calls were not tested, .*: amax of i8, amax of f32; offsets of 4294967428 bytes were not' \
    "$work/out" && good=yes || good=no
report 'far elements without a kernel are counted' $good
# Calls and layouts that `supports` refuses are not tested.
LIBCORE_MUTANT_RULE=refuses-transposed-matrices
passed ops/rules/products-of-middle-sizes ', while mm refuses layouts'
grep -q 'middle-sizes: [1-9][0-9]* of [1-9][0-9]* calls were not tested, .*: mm of' \
    "$work/out" && good=yes || good=no
report 'layouts that are refused are counted' $good
LIBCORE_MUTANT_RULE=refuses-a-million-elements
passed ops/rules/last-of-a-million ', while amax refuses them'
# Draws may be flushed where that is declared.
LIBCORE_MUTANT_RULE=flushed-draws-are-declared
passed ops/rules/draws-are-distributed ', of flushed draws'
# The order of a sum is the kernel's.
LIBCORE_MUTANT_RULE=rows-are-added-in-order
passed ops/rules/variances-of-large-numbers ', of sums in order'
# A device may lack memory for the blocks, and its queue may be full.
LIBCORE_MUTANT_RULE=granularity-of-256-kib
LIBCORE_SIM_BYTES=268435456
export LIBCORE_SIM_BYTES
passed core/memory/many-blocks ', on a device with 256 MiB and coarse blocks'
unset LIBCORE_SIM_BYTES
grep -q '^# core/memory/many-blocks: 512 blocks were allocated, not 1100' \
    "$work/out" && good=yes || good=no
report 'blocks that do not fit are counted' $good
LIBCORE_MUTANT_RULE=records-wait-for-room
passed core/device/many-events ', while records wait for room in a queue'
grep -q '^# core/device/many-events: it was not tested whether' "$work/out" &&
    good=yes || good=no
report 'records that wait are reported' $good
# A launch that waits for its stream is slow, and not wrong.
contexts=ops/rules/contexts-are-separate
LIBCORE_MUTANT_RULE=launches-of-abs-wait
passed $contexts ', while launches of abs wait'
good=no
grep -q "^# $contexts: launches that wait for the stream .*: abs\$" \
    "$work/out" && good=yes
report 'launches that wait are named' $good
# So is one that is made once only, and it is not named.
LIBCORE_MUTANT_RULE=first-launch-of-abs-waits
passed $contexts ', while the first launch of abs waits'
good=yes
grep -q 'launches that wait' "$work/out" && good=no
report 'a launch that compiles is not named' $good
workspaces=ops/rules/workspaces-are-separate
LIBCORE_MUTANT_RULE=launches-of-argmax-wait
passed $workspaces ', while launches of argmax wait'
good=no
grep -q "^# $workspaces: launches that wait for the stream .*: argmax\$" \
    "$work/out" && good=yes
report 'launches whose workspace was not seen are named' $good
# Draws are the kernel's, if they have the distribution.
LIBCORE_MUTANT_RULE=multinomial-draws-otherwise
passed ops/rules/multinomial-of-many-categories ', of other draws'
# Results may be off by as many units as in the test of the operator.
definitions=ops/rules/results-are-those-of-aten
LIBCORE_MUTANT_RULE=powers-of-16-units-are-declared
passed $definitions ', where powers have 16 units'
LIBCORE_MUTANT_RULE=norms-are-10-units-off
passed $definitions ', where a norm is rounded'
# A stream's error may also be reported when the next kernel is launched.
LIBCORE_MUTANT_RULE=launches-repeat-the-first-error
passed ops/rules/bad-indices-are-reported ', while a launch repeats an error'
# A copy may take longer than kernels.
LIBCORE_MUTANT_RULE=copies-begin-late
passed ops/rules/times-include-kernels ', while copies begin late'
# A kernel that the plugin does not save is not tested, and not passed.
saved=core/codegen/saved-kernels
unsaved() { # rule, why
    LIBCORE_MUTANT_RULE=$1 "$conformance" --plugin "$mutant" \
        --filter $saved --timeout $patience >"$work/out" 2>&1
    good=no
    grep -q "^ok 1 - $saved # SKIP" "$work/out" &&
        grep -q "not tested, $saved: $2" "$work/out" && good=yes
    report "$1: the summary says why it is not tested" $good
}
unsaved save-has-a-reason \
    'it offers save, but saves no kernel of this device: the driver returns'
unsaved saves-one-kernel-only 'save refuses 2 of 3 kernels: the driver returns'
# Gradients of f32 are compared where differences say something.
gradients=training/custom-operators/gradients-are-correct
LIBCORE_MUTANT_RULE=custom-operator-has-a-kink
passed $gradients ', beside a kink'
LIBCORE_MUTANT_RULE=custom-results-have-11-bits
passed $gradients ', of products of 11 bits'
# unchecked RULE WHY
unchecked() {
    LIBCORE_MUTANT_RULE=$1 "$conformance" --plugin "$mutant" \
        --filter $gradients --timeout $patience >"$work/out" 2>&1
    good=no
    grep -q "^ok 1 - $gradients # SKIP" "$work/out" &&
        grep -q "^# $gradients: mutant::square: not checked: $2\$" \
            "$work/out" && good=yes
    report "$1 is not checked" $good
}
unchecked custom-result-is-large 'a result has more than 256 elements'
unchecked custom-result-is-bf16 'a result is neither f32 nor f64'
unset LIBCORE_MUTANT_RULE LIBCORE_SIM_ALLOCATOR LIBCORE_SIM_COMPILE

# A device with one stream is tested as far as possible.
if [ -z "${LIBCORE_TEST_SHORT-}" ]; then
    LIBCORE_SIM_QUEUES=1
    export LIBCORE_SIM_QUEUES
    while read -r rule name verdict; do
        caught "$rule" "$name" "$verdict" ', with one stream'
        passed "$name" ', with one stream'
    done <<'EOF'
copies-are-late core/streams/work-is-in-order
synchronize-does-not-wait core/streams/synchronize-waits
destroy-waits core/streams/destroy-does-not-wait TIMEOUT
streams-leak core/streams/create-and-destroy-many
query-always-reports-done core/events/query-reports-completion
event-includes-later-work core/events/event-snapshots-at-record
priorities-are-reversed core/features/stream-priority
alloc-ignores-malloc-failure stress/tables/host-allocation-failures CRASH
EOF
    LIBCORE_SIM_ALLOCATOR=1
    export LIBCORE_SIM_ALLOCATOR
    caught allocator-blocks-overlap core/features/allocator '' \
        ', with one stream'
    passed core/features/allocator ', with one stream'
    unset LIBCORE_SIM_QUEUES LIBCORE_SIM_ALLOCATOR
fi

# Without host callbacks, long copies block streams.
if [ -z "${LIBCORE_TEST_SHORT-}" ]; then
    LIBCORE_MUTANT_LACKS=core.host_callback
    export LIBCORE_MUTANT_LACKS
    sed -n -e '/ core\/\(streams\|events\)\//p' \
        -e '/ core\/features\/.*\(graph\|capture\|allocator\)/p' \
        -e '/ core\/features\/copy-streams/p' \
        -e '/ core\/two-devices\/peer-copies/p' \
        -e '/ core\/memory\/host-memory-is-stable/p' \
        "$work/rules" >"$work/gated"
    [ -s "$work/gated" ] || report 'there are rules of streams' no
    # Small blocks and a longer delay: copies that wait rather than compute.
    LIBCORE_SIM_LARGEST=1048576
    delay=3000
    export LIBCORE_SIM_LARGEST
    while read -r rule name _; do
        offer "$name"
        caught "$rule" "$name" '' ', without host callbacks'
    done <"$work/gated"
    offer ''
    # Copies that are done when the call returns block no stream.
    LIBCORE_MUTANT_RULE=large-copies-block-the-host "$conformance" \
        --plugin "$mutant" \
        --filter 'core/streams/*' --timeout $patience >"$work/out" 2>&1
    grep -q 'not tested, 4 tests: .* its copies are done when the call ' \
        "$work/out" && good=yes || good=no
    report 'without any gate, the verdict says what was not tested' $good
    # What one process has measured serves the next.
    LIBCORE_MUTANT_RULE=counts-measurements LIBCORE_MUTANT_LOG=$work/measured \
        "$conformance" --plugin "$mutant" --timeout $patience \
        --filter core/streams/synchronize-waits,core/events/wait-blocks-stream \
        >"$work/out" 2>&1
    status=$?
    good=no
    [ $status = 0 ] && [ "$(sort -u "$work/measured" | wc -l)" = 1 ] && good=yes
    report 'a gate is measured once for all processes' $good
    # Gates of kernels, too, use blocks that the device can allocate.
    "$conformance" --plugin "$mutant" --filter $workspaces \
        --timeout $patience >"$work/out" 2>&1 && good=yes || good=no
    report 'copies that block kernels fit into small blocks' $good
    unset LIBCORE_SIM_LARGEST
    delay=100
    offer ''
    sed 's/^[^ ]* *\([^ ]*\).*/\1/' "$work/gated" | sort -u |
        grep -v -e allocator -e callback >"$work/chosen"
    all_pass ', without host callbacks'
    # The verdict says what could not be tested.
    "$conformance" --plugin "$mutant" --filter 'core/features/*callback*' \
        --timeout $patience >"$work/out" 2>&1
    grep -q '^#  *not tested, 2 tests: it has no core.host_callback$' \
        "$work/out" &&
        grep -q '^#  *core/features/callbacks-are-in-order, core/' \
            "$work/out" && good=yes || good=no
    report 'the verdict says what was not tested' $good
    offer core/features/allocator-keeps-order
    passed core/features/allocator-keeps-order ', without host callbacks'
    offer ''
    unset LIBCORE_MUTANT_LACKS
fi

# Takes a quarter of a minute.
if [ -n "${LIBCORE_TEST_LONG-}" ]; then
    LIBCORE_MUTANT_RULE=launches-wait
    export LIBCORE_MUTANT_RULE
    passed $contexts ', while launches wait'
    unset LIBCORE_MUTANT_RULE
fi

# Takes half a minute and 9 GiB, so only LIBCORE_TEST_LONG runs it.
huge=core/memory/copies-beyond-4-gib
available=$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)
if [ -n "${LIBCORE_TEST_LONG-}" ] && [ "${available:-0}" -lt 12000000 ]; then
    number=$((number + 1))
    echo "ok $number - $huge # SKIP less than 12 GB of memory are available"
elif [ -n "${LIBCORE_TEST_LONG-}" ]; then
    LIBCORE_SIM_BYTES=16000000000
    export LIBCORE_SIM_BYTES
    for rule in fill copy write read; do
        caught $rule-sizes-have-32-bits $huge '' '' \
            'whose size 32 bits do not hold: byte'
    done
    passed $huge ', on a device with 16 GB'
    unset LIBCORE_SIM_BYTES
fi
echo $huge >>"$work/names"

# Errors in a file are tested with fixtures instead of rules of the mutant.
fixture() { # plugin, test
    "$conformance" --plugin \
        "$LIBCORE_BUILD/tests/fixtures/.libs/core_$1.so" \
        --filter "$2" --timeout $patience >"$work/out" 2>&1
    status=$?
    good=no
    [ $status = 1 ] && grep -q "^not ok 1 - $2 # FAIL" "$work/out" && good=yes
    echo "$2" >>"$work/names"
    report "$1 is caught by $2" $good
}
fixture no_entry core/file/exports-one-symbol
fixture imports core/file/imports-no-libcore-symbol

if [ -n "${LIBCORE_TEST_SHORT-}" ]; then
    echo "1..$number"
    exit 0
fi
# Every test has a mutant, except those that need features the mutant lacks:
# foreign streams, recordings, unloading.  Measurements are not checked.
for level in core training stress; do
    "$conformance" --plugin "$mutant" --only $level --list
done >"$work/all"
"$conformance" --plugin "$mutant" --filter 'ops/rules/*' --list >>"$work/all"
grep -vxF -f "$work/names" "$work/all" >"$work/out"
good=yes
[ -s "$work/all" ] || good=no
while read -r name; do
    case $name in
    core/tensors/streams-and-events | core/tensors/oversized-tensor-fails) ;;
    training/golden/recorded-calls | stress/load/load-and-unload-1000-times) ;;
    *) good=no ;;
    esac
done <"$work/out"
report 'every test has a mutant' $good
echo "1..$number"
