# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# torch_python.sh: sourced by the sections torch and torch_memory.

# Sets $python to LIBCORE_TORCH_PYTHON, or to the Python of a virtual environment in
# build-tests, in which torch and what its tests need are installed by pip, if they are
# not: they take 5 GB.
find_torch_python() {
    python=${LIBCORE_TORCH_PYTHON-}
    [ -z "$python" ] || return 0
    python=$work/torch_python/bin/python
    "$python" -c 'import expecttest, numpy, scipy, torch' >/dev/null 2>&1 ||
        try "torch: installed by pip" install_torch "$work/torch_python"
}

install_torch() { # folder
    rm -rf "$1"
    "${PYTHON:-python3}" -m venv "$1" &&
        "$1/bin/python" -m pip install 'torch>=2.10' numpy scipy expecttest \
            setuptools wheel
}
