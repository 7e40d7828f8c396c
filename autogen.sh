#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# Makes configure in a checkout.  A tarball has it already.
set -e
cd "$(dirname "$0")"
exec autoreconf --install --force "$@"
