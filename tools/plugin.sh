# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# plugin.sh: sourced by scripts that take a build and a device.

# Prints the path of the plugin for the device in the build; nothing if there is
# none.
plugin_of() { # build, device
    for folder in "$1/backends/${2%%:*}/.libs" "$1/.libs" \
        "$1/plugins/${2%%:*}/.libs" "$1/backends/rocm/nvidia/.libs" \
        "$1/backends/gpu/emulated/.libs"; do
        [ ! -f "$folder/core_${2%%:*}.so" ] || {
            echo "$folder/core_${2%%:*}.so"
            return
        }
    done
}
