#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# The devices for PyTorch, where the build has them.

if [ -z "${TORCH_PYTHON-}" ]; then
    echo "1..0 # SKIP configured without --with-torch"
    exit 0
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/libcore-torch-XXXXXX")
trap 'rm -rf "$work"' EXIT
number=0

# shellcheck source=tests/support/tap.sh
. "$LIBCORE_SOURCE/tests/support/tap.sh"

PYTHONPATH=$LIBCORE_SOURCE/bindings/pytorch
LIBCORE_TORCH_SHIM=$LIBCORE_BUILD/bindings/pytorch/libcore_torch
export PYTHONPATH LIBCORE_TORCH_SHIM
ok "the devices for PyTorch compute, train and report errors" \
    "$TORCH_PYTHON" "$LIBCORE_SOURCE/bindings/pytorch/tests/test_smoke.py"
ok "the judges of results refuse wrong ones" \
    "$TORCH_PYTHON" "$LIBCORE_SOURCE/bindings/pytorch/tests/test_judges.py"
exchange="tensors are exchanged with numpy and torch without copies"
if "$TORCH_PYTHON" -c 'import numpy' 2>/dev/null; then
    ok "$exchange" "$TORCH_PYTHON" \
        "$LIBCORE_SOURCE/bindings/pytorch/tests/test_exchange.py"
else
    number=$((number + 1))
    echo "ok $number - $exchange # SKIP this Python has no numpy"
fi

echo "1..$number"
