#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# core-info: its output, and the arguments and files that it refuses.
info=$LIBCORE_BUILD/core-info
fixtures=$LIBCORE_BUILD/tests/fixtures/.libs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

# shows PATTERN ARGUMENT…: expects success, and a line of output that matches.
shows() {
    pattern=$1
    shift
    "$info" "$@" >"$work/out" || return 1
    grep -E "$pattern" "$work/out" || {
        cat "$work/out"
        return 1
    }
}

# ends STATUS PATTERN ARGUMENT…: expects that exit status, and a message that
# matches.
ends() {
    status=$1 pattern=$2
    shift 2
    "$info" "$@" >/dev/null 2>"$work/err"
    [ $? = "$status" ] && grep -E -e "$pattern" "$work/err"
}

# Runs a command with the fixtures' folder instead of the plugins'.
with_fixtures() {
    LIBCORE_PLUGIN_PATH=$fixtures "$@"
}

wrong_setting() {
    LIBCORE_THREDS=2 LIBCORE_THREADS=many shows "$1" --settings
}

misspelt_setting() {
    LIBCORE_TREADS=2 LIBCORE_FAULT=alloc:1 \
        shows 'LIBCORE_TREADS is not a setting.* LIBCORE_THREADS$' &&
        grep 'LIBCORE_FAULT is set and has no effect' "$work/out"
}

launched() { # PATTERN
    RANK=3 WORLD_SIZE=4 shows "$1" --comm
}

# Another section of the test run may have installed this tree meanwhile.
no_plugins() {
    LIBCORE_PLUGIN_PATH='' shows \
        'none found in the folder .*/plugins-0; |/plugins-0/core_' --plugins
}

full() {
    [ -c /dev/full ] || return 0
    for arguments in '' --json --kernels --settings --help --version; do
        # shellcheck disable=SC2086 # empty, or one word
        ! "$info" $arguments >/dev/full 2>"$work/err" &&
            grep 'writing standard output failed' "$work/err" || return
    done
}

json_is_correct() {
    LIBCORE_COMPILE_CHECK=7 "$info" --json | "$python" -c '
import json, sys
info = json.load(sys.stdin)
cpu = [p for p in info["plugins"] if p["name"] == "cpu"][0]
assert cpu["state"] == "loaded", cpu
assert cpu["seal"] == "sealed", cpu
backend = [b for b in info["backends"] if b["device_type"] == "cpu"][0]
assert backend["devices"][0]["memory_total"] > 0, backend
assert backend["kernels_by_operator"]["add.Tensor"] > 0
assert backend["devices"][0]["memory_kinds"] == ["unified", "host-visible"]
assert len(info["settings"]) >= 10
assert info["compile"]["compiled_calls"] == 1001, info["compile"]
assert info["compile"]["lazy_found"] == 999, info["compile"]
assert info["compile"]["fused_kernels"] == 0, info["compile"]
assert info["compile"]["settings"]["LIBCORE_COMPILE_CODEGEN"] == "auto"
assert info["compile"]["settings"]["LIBCORE_COMPILE_CHECK"] == "7"
types = {s["name"]: s["type"] for s in info["settings"]}
assert types["LIBCORE_THREADS"] == "integer", types
assert types["LIBCORE_BLOCKING"] == "switch", types
assert info["default_device"] == "cpu"
'
}

compiled_in_detail() {
    LIBCORE_COMPILE_CHECK=50 "$info" --compile >"$work/out" || return
    cat "$work/out"
    grep '^  LIBCORE_COMPILE_CHECK=50 (environment)$' "$work/out" &&
        grep '^  LIBCORE_LOOP_ITERATIONS=1000000 (default)$' "$work/out" &&
        grep '^    traces 21, .* checks 20, ' "$work/out"
}

fixtures_as_json() {
    with_fixtures "$info" --json --plugins | "$python" -c '
import json, sys
plugins = {p["path"].rsplit("/", 1)[1]: p
           for p in json.load(sys.stdin)["plugins"]}
assert plugins["core_good.so"]["state"] == "loaded"
for name, plugin in plugins.items():
    assert (plugin["state"] == "loaded") == (plugin["reason"] == ""), plugin
    assert plugin["state"] in ("loaded", "refused", "failed"), plugin
assert plugins["core_abi_future.so"]["abi"]["minor_min"] == 1000
'
}

no_device() {
    LIBCORE_DEVICE=abacus shows 'default device: none: no device "abacus"' \
        --devices
}

# A driver cannot send control characters to the terminal.
invalid_values() { # where, pattern
    (
        export FIXTURE_INVALID="$1" LIBCORE_PLUGIN_PATH="$fixtures"
        LC_ALL=C shows "$2" --devices &&
            ! LC_ALL=C grep -a "$(printf '[\001-\011\013-\037\177]')" \
                "$work/out" && ! grep -aF '(null)' "$work/out"
    )
}

raw_texts() {
    invalid_values 'raw texts' ' A\\x1b\[2J\\x0d\\x0aB\\xc2\\x9b$' &&
        ! sed -n '/^  invalid .*synchronous/,/kernels for/p' "$work/out" |
            grep -a ' id:' &&
        grep -a 'driver: Größe\\x091\\xe2\\x80\\xae$' "$work/out"
}

raw_json() {
    FIXTURE_INVALID='raw texts' with_fixtures "$info" --json >"$work/out" &&
        grep -F 'A\u001b[2J\u000d\nB' "$work/out" &&
        grep -F '"stable_id": ""' "$work/out"
}

unknown_names() {
    invalid_values 'unknown names' 'of these names: expp\\x1b, exp_$' &&
        FIXTURE_INVALID='unknown names' LIBCORE_LOG=warning \
            with_fixtures "$info" >/dev/null 2>"$work/err" &&
        grep -F 'invalid: the kernel "expp " of "invalid" is never' \
            "$work/err" &&
        grep -F 'invalid: the kernel "exp_" of "invalid" is never called: '\
'calls of this operator use the kernels of "exp"' "$work/err" || return
    shows 'kernels for' --devices || return
    ! grep 'never called' "$work/out"
}

another_name() {
    invalid_values "another's name" 'of these names: sum\.dim_IntList$'
}

kinds() {
    shows '^ +memory: unified,host-visible$' --devices &&
        shows '^ +memory: device,pinned,virtual,peer$' --devices
}

# Seals a copy of a plugin, and then damages it.
sealed() {
    mkdir "$work/sealed" &&
        cp "$fixtures/core_good.so" "$work/sealed/" &&
        LIBCORE_PLUGIN_PATH=$work/sealed shows 'good +loaded .* unsealed ' \
            --plugins &&
        "$info" --seal "$work/sealed/core_good.so" &&
        LIBCORE_PLUGIN_PATH=$work/sealed shows 'good +loaded .* sealed ' \
            --plugins &&
        sed 's/libcore tests/libcore rests/' "$work/sealed/core_good.so" \
            >"$work/sealed/core_rest.so" &&
        rm "$work/sealed/core_good.so" &&
        LIBCORE_PLUGIN_PATH=$work/sealed shows 'does not match its seal' \
            --plugins
}

not_sealed() {
    echo text >"$work/text.so"
    ends 1 'text.so: is not an ELF file' --seal "$work/text.so" &&
        ends 2 'seal needs at least one file' --seal
}

echo 1..37
ok 'the cpu plugin is loaded' shows '^ +cpu +loaded +0\.' --plugins
ok 'the cpu device has memory' shows '^ +cpu +[0-9.]+ [KMGT]iB' --devices
ok 'plugins and devices are shown without flags' shows '^ +cpu +loaded'
ok 'the default device is shown' \
    shows '^  default device: "cpu"$' --devices
ok 'the reason for a missing default device is shown' no_device
ok 'kernels are listed by operator' shows '[0-9] +add\.Tensor$' --kernels
ok 'settings are listed' shows '^ +LIBCORE_FALLBACK is not set' --settings
ok 'types and users of settings are shown' \
    shows '^ +Type: integer; used by: backend cpu\.$' --settings
LIBCORE_CACHE=$work/cache
export LIBCORE_CACHE
ok 'the folder of kernels is shown' \
    shows '^ +kernels on disk: .*/cache/kernels, 0 files, .*; 0 hits' --compile
LIBCORE_CACHE=0
ok 'without a folder the reason is shown' \
    shows '^ +kernels are not kept on disk: LIBCORE_CACHE is 0' --compile
unset LIBCORE_CACHE
ok 'engines of collectives are shown' with_fixtures \
    shows '^ +engine +sockets, of the plugin sockets 1\.0$' --comm
ok 'an engine that can be used is shown as such' grep 'can be used$' "$work/out"
ok 'a launcher is shown' launched '^ +launcher +RANK=3$'
ok 'no launcher is shown' shows '^ +launcher +none' --comm
ok 'engines are in the JSON' shows '"engines": \[' --comm --json
ok 'a compiled function is tried' \
    shows '^ +counters: 1001 calls, 1001 of them compiled, 1 recording in' --compile
ok 'settings and counters of compiled functions are shown' compiled_in_detail
ok 'a lazy region is tried' \
    shows 'counters: 1000 cuts, 1 segment compiled, 999 found again' --compile
ok 'an invalid value is reported' wrong_setting 'Not accepted: .*"many".* 1 to 1024'
ok 'an unknown name is reported' wrong_setting '^ +LIBCORE_THREDS=2$'
ok 'settings without effect are shown without flags' misspelt_setting
ok 'the folder of installed plugins is shown' no_plugins
ok 'reasons of refused plugins are shown' \
    with_fixtures shows 'the moon is full' --plugins
ok 'an unknown flag is an error' ends 2 'unknown argument --colour' --colour
ok 'the message has the usage' ends 2 '^usage: core-info' --colour
ok 'output that cannot be written is an error' full
ok 'control characters of drivers are escaped' raw_texts
ok 'control characters of drivers are escaped in JSON' raw_json
ok 'a reason is printed in one line' invalid_values 'raw reason' \
    'none: no\\x1b\[2Jdevice\\x0aname \\xff\\x7f$'
ok 'kernels that are never called are reported' unknown_names
ok 'a kernel of an operator that uses other kernels is reported' another_name
ok 'kinds of memory are shown' kinds
ok 'a damaged sealed file is refused' sealed
crash_is_named() {
    env FIXTURE_CRASHING=constructor \
        LIBCORE_PLUGIN_PATH="$fixtures/core_crashing.so" \
        "$info" --plugins >"$work/out" 2>"$work/err"
    [ $? -gt 128 ] && grep -q 'crashed (.*) while it opened .*/core_crashing.so; with LIB' \
        "$work/err"
}
ok 'a plugin that crashes while it is opened is named' crash_is_named
ok 'a file that cannot be sealed is reported' not_sealed
python=${PYTHON:-python3}
if "$python" -c 'import json' 2>/dev/null; then
    ok 'JSON contains all information' json_is_correct
    ok 'JSON contains every reason' fixtures_as_json
else
    echo 'ok 26 - JSON contains all information # SKIP no Python'
    echo 'ok 27 - JSON contains every reason # SKIP no Python'
fi
