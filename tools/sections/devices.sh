# shellcheck shell=sh disable=SC2034,SC2154 # variables of common.sh
# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors

# devices: recorded cases on each GPU of this machine.
section_devices() {
    for row in cuda:/dev/nvidiactl rocm:/dev/kfd; do
        name=${row%%:*}
        plugin=$main/backends/$name/.libs/core_$name.so
        reason=$(sed -n "s/^  $name  *[a-z]*  *//p" "$main/build.txt" \
            2>/dev/null | head -n 1)
        if [ ! -f "$plugin" ]; then
            skip "$name" "core_$name.so is not built: ${reason:-not configured}"
        elif [ ! -e "${row##*:}" ]; then
            skip "$name" "core_$name.so is built, but this machine has no GPU"
        else
            for set in public current; do
                try "golden, $set, on $name" \
                    env LIBCORE_PLUGIN_PATH="$main/.libs:${plugin%/*}" \
                    "$main/core-conformance" --device "$name" \
                    --golden "$source/tests/golden/$set" \
                    --required "$source/tests/golden/$set.ops"
            done
        fi
    done
}
