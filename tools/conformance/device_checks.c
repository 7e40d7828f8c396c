/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

#include "device_checks.h"

void device_checks_check_properties(const core_device_properties *p,
                                    const char *which, outcome *out)
{
    const uint32_t known = CORE_DEVICE_FLAT | CORE_DEVICE_HOST_ACCESS |
                           CORE_DEVICE_HOST_STABLE | CORE_DEVICE_HAS_F64 |
                           CORE_DEVICE_UNIFIED;

    expect(out,
           p->base_alignment > 0 &&
               (p->base_alignment & (p->base_alignment - 1)) == 0,
           "the base alignment of %s, %llu, is not a power of two", which,
           (unsigned long long)p->base_alignment);
    expect(out, !(p->flags & ~known) && p->reserved == 0,
           "the properties of %s have unknown flags, %#x, or a field reserved "
           "that is not 0, %u",
           which, p->flags & ~known, p->reserved);
    expect(out, p->granularity >= 1, "the granularity of %s is 0", which);
    expect(out,
           !(p->flags & CORE_DEVICE_HOST_ACCESS) ||
               (p->flags & CORE_DEVICE_FLAT),
           "%s has HOST_ACCESS without FLAT", which);
    expect(out,
           !p->largest_allocation || !p->total_memory ||
               p->largest_allocation <= p->total_memory,
           "the largest allocation of %s, %llu bytes, exceeds its memory, %llu "
           "bytes",
           which, (unsigned long long)p->largest_allocation,
           (unsigned long long)p->total_memory);
}

static bool is_utf8(core_string text)
{
    if (text.size > 0 && (!text.data || text.size > 4096))
        return false;
    for (uint64_t i = 0; i < text.size; i++) {
        unsigned char c = (unsigned char)text.data[i];
        int more = c < 0x80   ? 0
                   : c < 0xc2 ? -1
                   : c < 0xe0 ? 1
                   : c < 0xf0 ? 2
                   : c < 0xf5 ? 3
                              : -1;

        if (more < 0 || c == 0)
            return false;
        for (; more > 0; more--)
            if (++i >= text.size || (text.data[i] & 0xc0) != 0x80)
                return false;
    }
    return true;
}

void device_checks_check(const core_device_information *about,
                         const char *which, outcome *out)
{
    expect(out, about->name.size > 0 && is_utf8(about->name),
           "the name of %s is empty or not UTF-8", which);
    expect(out,
           is_utf8(about->stable_id) && is_utf8(about->driver) &&
               is_utf8(about->runtime) && is_utf8(about->firmware) &&
               is_utf8(about->features),
           "a text of the information of %s is not UTF-8", which);
}
