#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# docs/plugin-guide.md: every step builds from the headers alone and is a
# complete device, quoted code is in the sources, and the C++ template, the Rust template
# and the Autoconf macro work as documented.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number=0
template=$LIBCORE_SOURCE/plugins/template
path=$LIBCORE_BUILD/.libs

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

skip() { # name, why
    number=$((number + 1))
    echo "ok $number - $1 # SKIP $2"
}

golden() { # folder, device, arguments...
    folder=$1 device=$2
    shift 2
    LIBCORE_PLUGIN_PATH=$path:$folder "$LIBCORE_BUILD/core-conformance" \
        --golden "$LIBCORE_SOURCE/tests/golden/public" --device "$device" "$@" \
        >"$work/out" 2>&1
    cat "$work/out"
    grep -qE "$passes" "$work/out" && ! grep 'validate:' "$work/out"
}

flags='-O2 -Wall -Wextra -Werror -fPIC -fvisibility=hidden -shared -Wl,-z,defs'

build_step() {
    mkdir -p "$work/$1"
    # shellcheck disable=SC2086 # split into words on purpose
    ${CC:-cc} -std=gnu11 $flags -DSTEP="$1" -I"$LIBCORE_SOURCE/include" \
        -Wl,--version-script="$template/plugin.map" \
        -o "$work/$1/core_steps.so" "$template"/steps/*.c -lm
}

# The whole golden suite, checked by the interposer validate.
complete() {
    passes='^[0-9]{4} passed, 0 failed, 0 missing'
    LIBCORE_FALLBACK=count LIBCORE_INTERPOSERS=validate golden "$work/$1" steps
}

# The step's own kernel; the CPU only copies.
own_kernel() {
    passes='^[1-9][0-9]* passed, 0 failed'
    LIBCORE_FALLBACK=copy_ golden "$work/$1" steps --filter "$2"
}

# core-conformance finds no failure among the operators that the plugin claims,
# as the last line of the guide promises.  Calls of many elements take minutes.
quick=--quick
[ -z "${LIBCORE_TEST_LONG-}" ] || quick=
conforms() { # level, file
    # shellcheck disable=SC2086 # nothing if empty
    LIBCORE_PLUGIN_PATH=$path "$LIBCORE_BUILD/core-conformance" \
        --plugin "$2" --only "$1" --timeout 600 $quick >"$work/out" 2>&1
    grep -A1 '^not ok' "$work/out"
    grep "^# level $1  *no failure" "$work/out"
}

# The tests of level training that call the plugin's own operators.
own_operator() {
    LIBCORE_PLUGIN_PATH=$path "$LIBCORE_BUILD/core-conformance" \
        --plugin "$work/8/core_steps.so" --filter 'training/custom-operators/*' \
        >"$work/out" 2>&1
    cat "$work/out"
    ! grep '^not ok' "$work/out" &&
        [ "$(grep -c '^ok [0-9].*training/custom-operators' "$work/out")" -ge 3 ] &&
        ! grep 'SKIP\|NOT_SUPPORTED' "$work/out"
}

both() { # file
    conforms core "$1" && conforms ops "$1"
}

# Only the tests of core/entry.
entries() {
    LIBCORE_PLUGIN_PATH=$path "$LIBCORE_BUILD/core-conformance" \
        --plugin "$1" --filter 'core/entry/*' >"$work/out" 2>&1
    cat "$work/out"
    ! grep '^not ok' "$work/out"
}

# Blocks after <!-- code: FILE --> must occur in that file, line by line; the
# indentation may differ.
quoted() {
    awk -v template="$template" '
        function plain(text) {
            gsub(/[ \t]+/, " ", text)
            sub(/^ /, "", text)
            return text
        }
        /^<!-- code: / { file = template "/" $3; next }
        file && /^```[a-z]/ { inside = 1; count = 0; next }
        inside && /^```/ {
            at = 0
            while (at < count && (getline line < file) > 0) {
                line = plain(line)
                if (line == plain(block[at])) at++
                else at = line == plain(block[0]) ? 1 : 0
            }
            close(file)
            if (at < count) { print FILENAME ": not in " file; bad = 1 }
            blocks++
            inside = 0; file = ""
            next
        }
        inside { block[count++] = $0 }
        END { print blocks " blocks"; exit bad || blocks < 9 }
    ' "$LIBCORE_SOURCE/docs/plugin-guide.md" \
        "$LIBCORE_SOURCE/docs/plugin-languages.md"
}

# A program that captures on the device of step 7 and launches twice.
captures() {
    cat >"$work/capture.c" <<'END'
#include <libcore/capture.h>
#include <libcore/core.h>
#include <libcore/ops.h>
#include <stdio.h>
#define OK(call)                                                   \
    do {                                                           \
        if ((call) != CORE_OK) {                                   \
            printf("%s: %s\n", #call, core_error_message());       \
            return 1;                                              \
        }                                                          \
    } while (0)
int main(void)
{
    const float first[4] = {1, 2, 3, 4}, second[4] = {5, 6, 7, 8};
    const int64_t size = 4;
    core_tensor *in, *next, *out;
    core_graph *graph;
    core_device *device;
    core_stream *stream;
    float got[4];

    OK(core_device_find("steps", &device));
    OK(core_tensor_from_data(first, CORE_F32, &size, 1, device, &in));
    OK(core_tensor_from_data(second, CORE_F32, &size, 1, NULL, &next));
    OK(core_stream_create(device, &stream));
    OK(core_capture_begin(stream, NULL));
    OK(core_neg(in, &out));
    OK(core_capture_end(stream, &graph));
    OK(core_graph_launch(graph, stream));
    OK(core_stream_synchronize(stream));
    OK(core_tensor_read(out, got, sizeof got));
    if (got[0] != -1 || got[3] != -4)
        return printf("first launch: %g %g\n", got[0], got[3]);
    OK(core_tensor_copy(in, next, false));
    OK(core_device_synchronize(device));
    OK(core_graph_launch(graph, stream));
    OK(core_stream_synchronize(stream));
    OK(core_tensor_read(out, got, sizeof got));
    if (got[0] != -5 || got[3] != -8)
        return printf("second launch: %g %g\n", got[0], got[3]);
    core_graph_release(graph);
    core_tensor_release(out);
    core_tensor_release(next);
    core_tensor_release(in);
    core_stream_release(stream);
    return 0;
}
END
    ${CC:-cc} -std=gnu11 -I"$LIBCORE_SOURCE/include" -I"$LIBCORE_BUILD/include" \
        -iquote "$LIBCORE_SOURCE/include/libcore" \
        -iquote "$LIBCORE_BUILD/include/libcore" -o "$work/capture" \
        "$work/capture.c" -L"$path" -lcore -Wl,-rpath,"$path" &&
        LIBCORE_FALLBACK=copy_ LIBCORE_INTERPOSERS=validate \
            LIBCORE_PLUGIN_PATH=$path:$work/7 "$work/capture"
}

# Threads that submit work to one capturing stream: all of it is in the graph.
threads_capture() {
    cat >"$work/threads.c" <<'END'
#include <libcore/capture.h>
#include <libcore/core.h>
#include <libcore/ops.h>
#include <pthread.h>
#include <stdio.h>
enum { THREADS = 4, EACH = 5000 };
static core_stream *stream;
static core_tensor *one, *sums[THREADS];
static void *submit(void *sum)
{
    const core_scalar alpha = {CORE_VALUE_INT, 0, {.i = 1}};
    core_stream_guard guard;
    core_status status = core_stream_guard_enter(stream, &guard);
    for (int i = 0; i < EACH && status == CORE_OK; i++)
        status = core_add_(sum, one, alpha);
    if (status != CORE_OK)
        printf("%s\n", core_error_message());
    core_stream_guard_leave(&guard);
    return NULL;
}
#define OK(call)                                                   \
    do {                                                           \
        if ((call) != CORE_OK) {                                   \
            printf("%s: %s\n", #call, core_error_message());       \
            return 1;                                              \
        }                                                          \
    } while (0)
int main(void)
{
    const int64_t size = 1;
    core_device *device;
    core_graph *graph;
    pthread_t threads[THREADS];
    float got;
    int lost = 0;

    OK(core_device_find("steps", &device));
    OK(core_ones(&size, 1, CORE_F32, device, &one));
    for (int i = 0; i < THREADS; i++)
        OK(core_zeros(&size, 1, CORE_F32, device, &sums[i]));
    OK(core_stream_create(device, &stream));
    OK(core_device_synchronize(device));
    OK(core_capture_begin(stream, NULL));
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, submit, sums[i]))
            return printf("no thread\n");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    OK(core_capture_end(stream, &graph));
    if (core_graph_size(graph) != THREADS * EACH)
        lost = printf("size %d\n", (int)core_graph_size(graph));
    OK(core_graph_launch(graph, stream));
    OK(core_stream_synchronize(stream));
    for (int i = 0; i < THREADS; i++) {
        OK(core_tensor_read(sums[i], &got, sizeof got));
        if (got != EACH)
            lost = printf("thread %d: %g\n", i, got);
        core_tensor_release(sums[i]);
    }
    core_graph_release(graph);
    core_tensor_release(one);
    core_stream_release(stream);
    return lost;
}
END
    ${CC:-cc} -std=gnu11 -I"$LIBCORE_SOURCE/include" -I"$LIBCORE_BUILD/include" \
        -iquote "$LIBCORE_SOURCE/include/libcore" \
        -iquote "$LIBCORE_BUILD/include/libcore" -o "$work/threads" \
        "$work/threads.c" -L"$path" -lcore -lpthread -Wl,-rpath,"$path" &&
        LIBCORE_FALLBACK=copy_ LIBCORE_PLUGIN_PATH=$path:$work/7 "$work/threads"
}

# A product that step 8 reports and the CPU computes, with its gradient.
watches() {
    cat >"$work/watch.c" <<'END'
#include <libcore/core.h>
#include <libcore/ops.h>
#include <stdio.h>
#define OK(call)                                                   \
    do {                                                           \
        if ((call) != CORE_OK) {                                   \
            printf("%s: %s\n", #call, core_error_message());       \
            return 1;                                              \
        }                                                          \
    } while (0)
int main(void)
{
    const int64_t row[2] = {1, 5000}, column[2] = {5000, 1};
    core_tensor *a, *b, *out;
    core_device *device;
    float got[5000];

    OK(core_device_find("steps", &device));
    OK(core_ones(row, 2, CORE_F32, device, &a));
    OK(core_ones(column, 2, CORE_F32, device, &b));
    OK(core_tensor_set_requires_grad(a, true));
    OK(core_mm(a, b, &out));
    OK(core_backward(&out, 1, NULL, 0));
    OK(core_tensor_read(out, got, sizeof *got));
    if (got[0] != 5000)
        return printf("product: %g\n", got[0]);
    OK(core_tensor_read(core_tensor_grad(a), got, sizeof got));
    if (got[0] != 1 || got[4999] != 1)
        return printf("gradient: %g %g\n", got[0], got[4999]);
    core_tensor_release(out);
    core_tensor_release(b);
    core_tensor_release(a);
    return 0;
}
END
    ${CC:-cc} -std=gnu11 -I"$LIBCORE_SOURCE/include" -I"$LIBCORE_BUILD/include" \
        -iquote "$LIBCORE_SOURCE/include/libcore" \
        -iquote "$LIBCORE_BUILD/include/libcore" -o "$work/watch" \
        "$work/watch.c" -L"$path" -lcore -Wl,-rpath,"$path" &&
        LIBCORE_FALLBACK=mm,copy_ LIBCORE_INTERPOSERS=validate \
            LIBCORE_LOG=warning LIBCORE_PLUGIN_PATH=$path:$work/8 \
            "$work/watch" >"$work/out" 2>&1 &&
        grep 'steps: a product is too large' "$work/out" &&
        ! grep 'validate:' "$work/out"
}

# A callback between two events, and indices out of range: in a call, in a graph
# that is launched on another stream, and after neither of them.
services() {
    cat >"$work/services.c" <<'END'
#include <libcore/capture.h>
#include <libcore/core.h>
#include <libcore/ops.h>
#include <stdio.h>
#include <string.h>
#define OK(call)                                                   \
    do {                                                           \
        if ((call) != CORE_OK) {                                   \
            printf("%s: %s\n", #call, core_error_message());       \
            return 1;                                              \
        }                                                          \
    } while (0)
#define FINDS(call)                                                \
    do {                                                           \
        if ((call) != CORE_ERROR_INDEX ||                          \
            !strstr(core_error_message(), "invalid data, 4"))      \
            return printf("%s: %s\n", #call, core_error_message()); \
    } while (0)
static void set(void *context)
{
    *(int *)context = 1;
}
int main(void)
{
    const float data[4] = {1, 2, 3, 4};
    const int32_t indices[2] = {-1, 0}, wrong[2] = {1, 4};
    const int64_t four = 4, two = 2;
    core_tensor *self, *good, *bad, *out;
    core_event *start, *end;
    core_graph *graph;
    core_device *device;
    core_stream *stream, *other;
    double elapsed = -1;
    float got[2];
    int called = 0;

    OK(core_device_find("steps", &device));
    OK(core_tensor_from_data(data, CORE_F32, &four, 1, device, &self));
    OK(core_tensor_from_data(indices, CORE_I32, &two, 1, device, &good));
    OK(core_tensor_from_data(wrong, CORE_I32, &two, 1, device, &bad));
    OK(core_stream_create(device, &stream));
    OK(core_stream_create(device, &other));
    OK(core_event_create(device, CORE_EVENT_TIMING, &start));
    OK(core_event_create(device, CORE_EVENT_TIMING, &end));
    OK(core_event_record(start, stream));
    OK(core_stream_callback(stream, set, &called, NULL));
    OK(core_event_record(end, stream));
    OK(core_event_synchronize(end));
    OK(core_event_elapsed(start, end, &elapsed));
    if (!called || elapsed < 0)
        return printf("%d, %g ms\n", called, elapsed);
    OK(core_take(self, bad, &out));
    FINDS(core_device_synchronize(device));
    core_tensor_release(out);
    OK(core_capture_begin(stream, NULL));
    OK(core_take(self, bad, &out));
    OK(core_capture_end(stream, &graph));
    OK(core_graph_launch(graph, other));
    FINDS(core_stream_synchronize(other));
    core_graph_release(graph);
    core_tensor_release(out);
    OK(core_take(self, good, &out));
    OK(core_tensor_read(out, got, sizeof got));
    if (got[0] != 4 || got[1] != 1)
        return printf("%g %g\n", got[0], got[1]);
    core_event_release(start);
    core_event_release(end);
    core_tensor_release(out);
    core_tensor_release(good);
    core_tensor_release(bad);
    core_tensor_release(self);
    core_stream_release(other);
    core_stream_release(stream);
    return 0;
}
END
    ${CC:-cc} -std=gnu11 -I"$LIBCORE_SOURCE/include" -I"$LIBCORE_BUILD/include" \
        -iquote "$LIBCORE_SOURCE/include/libcore" \
        -iquote "$LIBCORE_BUILD/include/libcore" -o "$work/services" \
        "$work/services.c" -L"$path" -lcore -Wl,-rpath,"$path" &&
        LIBCORE_FALLBACK=copy_ LIBCORE_INTERPOSERS=validate \
            LIBCORE_PLUGIN_PATH=$path:$work/9 "$work/services"
}

cxx() {
    mkdir -p "$work/cxx"
    # shellcheck disable=SC2086 # split into words on purpose
    $compiler -std=c++17 $flags -fno-gnu-unique \
        -I"$LIBCORE_SOURCE/include" \
        -Wl,--version-script="$template/plugin.map" \
        -o "$work/cxx/core_template_cxx.so" "$template/template.cc" &&
        passes='^[1-9][0-9]* passed, 0 failed' &&
        LIBCORE_FALLBACK=copy_ golden "$work/cxx" cxx --filter exp &&
        passes='^[0-9]{4} passed, 0 failed, 0 missing' &&
        LIBCORE_INTERPOSERS=validate LIBCORE_FALLBACK=count golden "$work/cxx" cxx &&
        both "$work/cxx/core_template_cxx.so"
}

# A plugin's configure.ac, with headers that are not installed.
autoconf_macro() {
    mkdir -p "$work/project/m4" "$work/pc" || return 1
    sed -e "s,^includedir=.*,includedir=$LIBCORE_SOURCE/include," \
        -e "s,^versionscript=.*,versionscript=$template/plugin.map," \
        -e "s,^bindir=.*,bindir=$LIBCORE_BUILD," \
        "$LIBCORE_BUILD/libcore.pc" >"$work/pc/libcore.pc"
    cp "$LIBCORE_SOURCE/m4/libcore_plugin.m4" "$work/project/m4"
    cp "$template/template.c" "$work/project"
    cat >"$work/project/configure.ac" <<'END'
AC_INIT([example], [1])
AC_CONFIG_MACRO_DIRS([m4])
AC_PROG_CC
LIBCORE_PLUGIN([0.1])
AC_CONFIG_FILES([Makefile])
AC_OUTPUT
END
    cat >"$work/project/Makefile.in" <<'END'
plugindir = @plugindir@
core_template.so: template.c
	@CC@ -std=gnu11 @LIBCORE_PLUGIN_CFLAGS@ @LIBCORE_PLUGIN_LDFLAGS@ -o $@ template.c -lm
	@LIBCORE_PLUGIN_SEAL@ $@
END
    (cd "$work/project" && aclocal -I m4 && autoconf &&
        PKG_CONFIG_PATH=$work/pc ./configure -q \
            --with-libcore-plugindir=/somewhere && make &&
        grep -q '^plugindir = /somewhere$' Makefile &&
        grep -qa SEALED core_template.so && ! grep -qa UNSEALED core_template.so &&
        [ "$(nm -D --defined-only core_template.so |
            awk '{ print $3 }')" = core_plugin_entry ] &&
        ! PKG_CONFIG_LIBDIR=/nowhere PKG_CONFIG_PATH='' ./configure -q \
            2>refused && grep 'plugin headers of libcore' refused)
}

# A plugin in C and one in C++ with Automake and libtool, as the macro's comment
# shows.
libtool_macro() {
    mkdir -p "$work/libtool/m4" &&
        cp "$LIBCORE_SOURCE/m4/libcore_plugin.m4" "$work/libtool/m4" &&
        cp "$template/template.c" "$template/template.cc" "$work/libtool" ||
        return
    cat >"$work/libtool/configure.ac" <<'END'
AC_INIT([example], [1])
AC_CONFIG_MACRO_DIRS([m4])
AM_INIT_AUTOMAKE([foreign])
AC_PROG_CC
AC_PROG_CXX
LT_INIT([disable-static])
LIBCORE_PLUGIN([0.1])
AC_CONFIG_FILES([Makefile])
AC_OUTPUT
END
    cat >"$work/libtool/Makefile.am" <<'END'
ACLOCAL_AMFLAGS = -I m4
plugin_LTLIBRARIES = core_example.la core_example_cxx.la
core_example_la_SOURCES = template.c
core_example_la_CFLAGS = $(LIBCORE_PLUGIN_CFLAGS)
core_example_la_LDFLAGS = -module -avoid-version $(LIBCORE_PLUGIN_LDFLAGS)
core_example_la_LIBADD = -lm
core_example_cxx_la_SOURCES = template.cc
core_example_cxx_la_CXXFLAGS = $(LIBCORE_PLUGIN_CXXFLAGS)
core_example_cxx_la_LDFLAGS = -module -avoid-version $(LIBCORE_PLUGIN_LDFLAGS)
core_example_cxx_la_LIBADD = -lm
END
    (cd "$work/libtool" && autoreconf -i && PKG_CONFIG_PATH=$work/pc \
        ./configure -q --with-libcore-plugindir=/somewhere && make &&
        make install DESTDIR="$work/libtool/root" &&
        for plugin in core_example core_example_cxx; do
            [ "$(nm -D --defined-only root/somewhere/$plugin.so |
                awk '{ print $3 }')" = core_plugin_entry ] || exit 1
        done)
}

for step in 1 2 3 4 5 6 7 8 9; do
    ok "step $step builds without warnings" build_step $step
    ok "step $step is a complete device and passes validate" complete $step
done
for name in neg exp add.Tensor div.Tensor; do
    ok "the family of step 3 computes $name" own_kernel 3 $name
done
ok 'the product of step 4 is correct' own_kernel 4 mm
ok 'the product with a plan of step 5 is correct' own_kernel 5 mm
ok 'step 7 captures and launches a graph' captures
ok 'step 7 captures what several threads submit' threads_capture
ok 'the operator of step 8 has kernels, a shape and a gradient' own_operator
ok 'the function of step 8 observes products' watches
ok 'step 9 has callbacks, times and errors in data' services
# Its devices have all that the earlier steps add.
ok 'step 9 conforms' both "$work/9/core_steps.so"
ok 'quoted code is in the sources' quoted
rust() {
    mkdir -p "$work/rust" &&
        "$rustc" --edition 2021 -O --crate-type cdylib -C panic=unwind \
            -o "$work/rust/core_template_rs.so" "$template/template.rs" &&
        [ "$(nm -D --defined-only "$work/rust/core_template_rs.so" |
            awk '{ print $3 }')" = core_plugin_entry ] &&
        LIBCORE_PLUGIN_PATH=$path:$work/rust "$LIBCORE_BUILD/core-info" \
            >"$work/info" && grep -E 'template_rs.*loaded' "$work/info" &&
        entries "$work/rust/core_template_rs.so" &&
        passes='^[1-9][0-9]* passed, 0 failed' &&
        LIBCORE_FALLBACK=copy_ golden "$work/rust" rust --filter exp &&
        passes='^[0-9]{4} passed, 0 failed, 0 missing' &&
        LIBCORE_INTERPOSERS=validate LIBCORE_FALLBACK=count golden "$work/rust" rust &&
        both "$work/rust/core_template_rs.so"
}

# Sizes and offsets that the Rust source asserts equal the headers'.
rust_layout() {
    sed -n -e 's/^ *assert!(size_of::<\([A-Za-z]*\)>() == \([0-9]*\));/\1 - \2/p' \
        -e 's/^ *assert!(offset_of!(\([A-Za-z]*\), \(r#\)\{0,1\}\([a-z_]*\)) == \([0-9]*\));/\1 \3 \4/p' \
        "$template/template.rs" >"$work/layout"
    {
        echo '#include <libcore/backend.h>'
        echo '#include <libcore/kernel.h>'
        echo 'typedef core_string Text; typedef core_plugin_offer Offer;'
        echo 'typedef core_plugin_answer Answer; typedef core_plugin_note Note;'
        echo 'typedef core_error_info ErrorInfo; typedef core_host Host;'
        echo 'typedef core_memory Memory; typedef core_memory_table MemoryTable;'
        echo 'typedef core_device_properties Properties;'
        echo 'typedef core_backend Backend; typedef core_operand Operand;'
        echo 'typedef core_loop Loop; typedef core_call Call;'
        echo 'typedef core_kernel Kernel;'
        # The header of an ELF note, its owner, its content, a seal.
        echo 'typedef struct { uint32_t sizes[3]; char owner[8]; Note content;'
        echo 'core_plugin_seal seal; } NoteInFile;'
        while read -r type member bytes; do
            if [ "$member" = - ]; then
                echo "_Static_assert(sizeof($type) == $bytes, \"\");"
            else
                echo "_Static_assert(offsetof($type, $member) == $bytes, \"\");"
            fi
        done <"$work/layout"
    } >"$work/layout.c"
    [ "$(wc -l <"$work/layout")" = "$(grep -c 'assert!(' \
        "$template/template.rs")" ] && [ -s "$work/layout" ] &&
        ${CC:-cc} -std=gnu11 -I"$LIBCORE_SOURCE/include" -fsyntax-only \
            "$work/layout.c"
}
ok 'Rust structs match the headers' rust_layout

rustc=${RUSTC-rustc}
if command -v "$rustc" >/dev/null 2>&1; then
    ok 'the Rust template builds and computes' rust
else
    skip 'the Rust template builds and computes' \
        'no rustc'
fi
compiler=${CXX:-c++} # may have arguments
if command -v "${compiler%% *}" >/dev/null 2>&1; then
    ok 'the C++ template builds and computes' cxx
else
    skip 'the C++ template builds and computes' 'no C++ compiler'
fi
if command -v aclocal >/dev/null 2>&1 && command -v autoconf >/dev/null 2>&1 &&
    command -v pkg-config >/dev/null 2>&1; then
    ok 'LIBCORE_PLUGIN works in a configure.ac' autoconf_macro
else
    skip 'LIBCORE_PLUGIN works in a configure.ac' 'no Autoconf or pkg-config'
fi
if [ -z "${LIBCORE_TEST_LONG-}" ]; then
    skip 'LIBCORE_PLUGIN works with Automake and libtool, in C and in C++' \
        'only with LIBCORE_TEST_LONG, since it takes a quarter of a minute'
elif command -v autoreconf >/dev/null 2>&1 &&
    command -v automake >/dev/null 2>&1 &&
    command -v libtoolize >/dev/null 2>&1 && [ -f "$work/pc/libcore.pc" ] &&
    command -v "${compiler%% *}" >/dev/null 2>&1; then
    ok 'LIBCORE_PLUGIN works with Automake and libtool, in C and in C++' \
        libtool_macro
else
    skip 'LIBCORE_PLUGIN works with Automake and libtool, in C and in C++' \
        'no Automake, libtool or compiler'
fi
echo "1..$number"
