# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# common.sh: sourced by run-tests and by each section from the top of the source
# tree: where things are, and how a tree is built and checked.
source=$PWD
work=$source/build-tests
main=$work/main
prefix=$work/prefix
reports=$work/reports
full=no
[ -z "${LIBCORE_TEST_LONG-}" ] || full=yes
# shellcheck source=tools/setup.sh
. tools/setup.sh
# shellcheck source=tools/sections/tally.sh
. tools/sections/tally.sh
jobs=$(processors)

# For a make that did not inherit job slots from the make that runs the
# sections.
parallel() {
    case ${MAKEFLAGS-} in *--jobserver*) ;; *) echo "-j$jobs" ;; esac
}

# Trees that have the same files at the same relative paths and the same flags
# share objects: distcheck's with the first build's.
use_ccache() {
    have ccache || return 0
    CC="ccache ${CC-cc}" CXX="ccache ${CXX-c++}" CXX_CHECK="ccache g++"
    CCACHE_DIR=$work/ccache CCACHE_BASEDIR=$source CCACHE_NOHASHDIR=1
    # The compiler names what it includes, and ccache need not preprocess each
    # source first to look for the same text.
    CCACHE_DEPEND=1
    export CC CXX CXX_CHECK CCACHE_DIR CCACHE_BASEDIR CCACHE_NOHASHDIR
    export CCACHE_DEPEND
}

# configure prefers bash, in which libtool takes twice as long.
use_dash() {
    [ -x /bin/dash ] || return 0
    CONFIG_SHELL=/bin/dash
    export CONFIG_SHELL
}

# Puts sections/libtool, which states why, in the place of the tree's libtool,
# unless objects are compiled in another way here.
use_fast_libtool() { # folder
    grep -qx 'pic_flag=" -fPIC -DPIC"' "$1/libtool" &&
        grep -qx 'build_old_libs=no' "$1/libtool" || return 0
    mv "$1/libtool" "$1/libtool.full" &&
        cp "$source/tools/sections/libtool" "$1/libtool" &&
        chmod +x "$1/libtool"
}

# Links a test program in half of the time.
use_gold() {
    have ld.gold || return 0
    PROGRAM_LINKER=gold
    export PROGRAM_LINKER
}

use_build() { # folder
    LIBCORE_PLUGIN_PATH=$1/.libs
    export LIBCORE_PLUGIN_PATH
}

# Kernels for GPUs are compiled by other compilers, to the same result in every
# tree.  Files keep their times, so that make renews those that are out of date.
copy_images=yes
copy_kernel_images() { # folder
    for folder in backends/gpu/generated backends/cuda/images \
        backends/rocm/images; do
        if [ -d "$main/$folder" ]; then
            mkdir -p "$1/$folder"
            cp -Rp "$main/$folder/." "$1/$folder/"
        fi
    done
    [ -n "${kernels-}" ] || return 0
    # Generated sources that are newer than the copied objects would renew them.
    generated=backends/cpu/generated
    mkdir -p "$1/$generated"
    for source_file in "$main/$generated"/*.[ch]; do
        [ -f "$1/$generated/${source_file##*/}" ] ||
            cp -p "$source_file" "$1/$generated"
    done
    # shellcheck disable=SC2086 # a list
    copy_objects "$1" $copied_objects
}

# Objects that a sanitizer's tree does not instrument without --full: patterns of
# their names below backends/, core/ops and tools/conformance.  Typed calls, which
# are generated, only pack their arguments.  The conformance runner is left out, what
# it calls is not.  Those of the CPU are of the instruction set that this machine does
# not choose.
typed_calls='ops/libcore_typed_calls_la-*.lo'
copied_objects="$typed_calls gpu/emulated/kernels/elementwise_*.lo"
copied_objects="$copied_objects conformance/core_conformance-*.o"
if grep -qs avx512f /proc/cpuinfo; then
    copied_objects="$copied_objects cpu/*/libcpu_avx2_la-*.lo"
else
    copied_objects="$copied_objects cpu/*/libcpu_avx512_la-*.lo"
fi
# A folder's stamp comes along, since make renews objects that are older.
copy_objects() { # folder, patterns...
    copied_to=$1
    shift
    for pattern; do
        find "$main/backends" "$main/core/ops" "$main/tools/conformance" \
            -path "$main/*/$pattern" |
            while read -r file; do
                folder=${file%/*} name=${file##*/}
                to=$copied_to${folder#"$main"}
                mkdir -p "$to/.libs" "$to/.deps" && cp -p "$file" "$to" || exit
                case $name in
                *.lo)
                    cp -p "$folder/.libs/${name%.lo}.o" "$to/.libs" || exit
                    ;;
                esac
                for stamp in .dirstamp .deps/.dirstamp; do
                    [ ! -f "$folder/$stamp" ] || [ -f "$to/$stamp" ] ||
                        cp -p "$folder/$stamp" "$to/$stamp" || exit
                done
            done
    done
}

# Kernels are not optimized.  Unless there is a GPU, on which the section
# `devices` runs them, nvcc compiles to PTX alone, which takes a third of the time,
# and nvcc compiles, and HIP's compiler parses, element-wise kernels for f32 only:
# those of other dtypes come from the same templates, and the
# emulated device has them all.  HIP's compiler only parses the other kernels too;
# gpu.sh compiles some of them.  The section `kernels` (--full) compiles what is
# installed.
unoptimized_kernels() {
    NVCCFLAGS='-Xcicc -O0 -Xptxas -O0'
    HIPCCFLAGS=-O0
    GPU_GENERATED_OPTIMIZATION=-O0
    CUDA_EMPTY_IMAGES="elementwise_f16 elementwise_bf16 elementwise_f64
        elementwise_whole"
    HIP_PARSED_IMAGES="elementwise_f32 $(cd backends/gpu/kernels &&
        printf '%s ' *.cu | sed 's/\.cu//g')"
    HIP_EMPTY_IMAGES=%
    CUDA_TARGETS='-gencode arch=compute_80,code=compute_80'
    [ ! -e /dev/nvidiactl ] || CUDA_EMPTY_IMAGES='' CUDA_TARGETS=''
    [ ! -e /dev/kfd ] || HIP_EMPTY_IMAGES=
    export NVCCFLAGS HIPCCFLAGS GPU_GENERATED_OPTIMIZATION
    export CUDA_EMPTY_IMAGES CUDA_TARGETS HIP_PARSED_IMAGES HIP_EMPTY_IMAGES
}

# The sources as a tarball has them, in a folder that is then built in itself.
# `make dist` renews the times of what is generated from ops.yaml, which nearly
# everything includes; with those of the first build, a second run compiles only
# what has changed.
copy_sources() { # folder
    rm -rf "$1.sources"
    make -C "$main" distdir distdir="$1.sources" || return
    (
        cd "$main" || exit
        for file in core/ops/generated/* include/libcore/ops*.h; do
            [ ! -f "$file" ] || [ ! -f "$1.sources/$file" ] ||
                touch -r "$file" "$1.sources/$file" || exit
        done
    ) && mkdir -p "$1" && cp -Rp "$1.sources/." "$1" && rm -rf "$1.sources"
}

# What the first build's configure found: it keeps nothing that depends on flags.
seed=yes # no: for a tree with another compiler
seed_cache() { # file
    rm -f "$1"
    [ $seed = no ] || [ ! -f "$main/found.cache" ] ||
        sed '/^ac_cv_env_/d' "$main/found.cache" >"$1"
}

# The files of dependencies that compilers replace.  configure creates those that do
# not exist, each with three processes: half of the time that it needs.
create_dependencies() { # Makefile.in
    awk '/^am__depfiles_remade =/ { names = 1 }
        names {
            more = sub(/\\$/, "")
            sub(/^.*=/, "")
            gsub(/\$\(DEPDIR\)/, ".deps")
            for (i = 1; i <= NF; i++) print $i
            if (!more) exit
        }' "$1" >dependencies.txt
    [ -s dependencies.txt ] || return
    sed 's,/[^/]*$,,' dependencies.txt | sort -u | xargs mkdir -p
    while read -r file; do
        [ -f "$file" ] || echo '# dummy' >"$file" || return
    done <dependencies.txt
    rm dependencies.txt
}

# If it runs again, configure looks for everything: a package may have been
# installed since.
configure_tree() { # configure and its arguments...
    [ ! -f Makefile ] || return 0
    create_dependencies "${1%configure}Makefile.in" &&
        seed_cache config.cache && "$@" && mv config.cache found.cache
}

# The programs under tools/ that are built with the library and the plugins; all
# of them if it is empty.
tools=

# Configures a tree, where that was not done, and builds it.
build() { # what, folder, configure's arguments...
    build_what=$1
    build_dir=$2
    shift 2
    mkdir -p "$build_dir"
    (
        cd "$build_dir" || exit 1
        configure=./configure
        [ -x configure ] || configure=$source/configure
        configure_tree "$configure" -q -C "$@" || exit 1
        use_fast_libtool . || exit 1
        [ "$build_dir" = "$main" ] || [ $copy_images = no ] ||
            copy_kernel_images "$build_dir"
        # shellcheck disable=SC2046 # empty or one option
        make $(parallel) ${tools:+bin_PROGRAMS="$tools"}
    ) >"$build_dir/build.txt" 2>&1 </dev/null
    status=$?
    sed -n '/^  backend/,/^$/p' "$build_dir/build.txt"
    if [ $status = 0 ]; then
        pass "$build_what: builds"
        warned "$build_what" "$build_dir/build.txt" &&
            pass "$build_what: no warning of the compiler"
    else
        fail "$build_what: does not build" "$build_dir/build.txt"
        return 1
    fi
}

# As users build it, but for the debugging information.
optimized='-O2 -g1'

# Sanitizers find the same with few optimizations, which compile nearly as fast as
# none: without, tests that call many operators take more than twice as long.
little_optimized='-Og -g1'

# Programs and plugins of the tests, which compile in less than half of the time
# with few optimizations; unit tests with none.
unit_optimization=UNIT_OPTIMIZATION=-O0
build_tests() { # folder, make's arguments...
    tests_dir=$1
    shift
    # shellcheck disable=SC2046 # empty or one option
    if make -C "$tests_dir" $(parallel) check "$@" TESTS= CFLAGS='-Og -g1' \
        "$unit_optimization" >"$tests_dir/tests.txt" 2>&1 </dev/null; then
        pass "programs of the tests: build"
        warned "programs of the tests" "$tests_dir/tests.txt"
    else
        fail "programs of the tests: do not build" "$tests_dir/tests.txt"
        return 1
    fi
}

# The leak checker follows pointers in the thread-local memory of libraries
# opened at run time, whose size older versions guess wrongly, and then crashes.
# Tests ask for more memory than there is.  A forked child may start threads.
sanitizer_options() {
    ASAN_OPTIONS=${ASAN_OPTIONS+$ASAN_OPTIONS:}intercept_tls_get_addr=0
    ASAN_OPTIONS=$ASAN_OPTIONS:allocator_may_return_null=1
    TSAN_OPTIONS=${TSAN_OPTIONS+$TSAN_OPTIONS:}die_after_fork=0
    TSAN_OPTIONS=$TSAN_OPTIONS:allocator_may_return_null=1
    export ASAN_OPTIONS TSAN_OPTIONS
    # The emulated GPU's kernels compile in half of the time, where functions check
    # accesses.
    GPU_EMULATED_OPTIMIZATION='-Og --param asan-instrumentation-with-call-threshold=0'
    export GPU_EMULATED_OPTIMIZATION
    # Nothing is seen twice that differs in a setting alone, and the generated
    # kernels of the emulated GPU, which index as the others do, are the first
    # build's: with sanitizers they compile for four minutes.
    kernels=
    if [ $full = no ]; then
        LIBCORE_TEST_SLOW=1
        export LIBCORE_TEST_SLOW
        kernels=GPU_GENERATED_SANITIZE=
    fi
}

# Those of a list of tests that are programs, as a list for make: what else
# there is need not be built.
programs() { # list
    for test in $1; do
        case $test in *.sh) ;; *) printf '%s ' "$test" ;; esac
    done
}

# Runs the tests of a tree that was built, and counts test cases, not programs.
check() { # what, folder, make's arguments...
    check_what=$1
    check_dir=$2
    shift 2
    [ ! -d "$check_dir/tests" ] ||
        find "$check_dir/tests" \( -name '*.trs' -o -name '*.log' \) \
            -exec rm -f {} +
    timed="$source/tools/sections/timed $work/times/$section"
    # shellcheck disable=SC2046 # empty or one option
    make -C "$check_dir" -k $(parallel) check ${tools:+bin_PROGRAMS="$tools"} \
        LOG_COMPILER="$timed" SH_LOG_COMPILER="$timed ${SHELL:-/bin/sh}" "$@" \
        >"$check_dir/check.txt" 2>&1 </dev/null
    status=$?
    count_check "$check_what" "$check_dir" $status
}
