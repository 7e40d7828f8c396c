/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* The entries of a compiled function in their slots. */

#include "compile/compiled/call.h"

#include <string.h>

/* Removes an entry from its slot. */
void core__entries_remove(core_compiled *compiled, uint32_t slot,
                          core__compiled_entry *entry, bool gone)
{
    bool removed;

    core__compiled_lock();
    removed = atomic_load(&compiled->entries[slot]) == entry;
    if (removed) {
        atomic_store(&compiled->entries[slot], NULL);
        atomic_fetch_sub(&compiled->nentries, 1);
    }
    core__compiled_unlock();
    if (!removed)
        return;
    core__compiled_count(&compiled->invalidated, gone);
    core__compiled_note_past(compiled, entry);
    core__entry_release(entry);
}

enum { NO_SLOT = UINT32_MAX };

static bool guards_hold(const core__compiled_entry *entry,
                        const core__guard *guard)
{
    return entry->guard_size == guard->size &&
           memcmp(entry->guard, guard->bytes, guard->size) == 0;
}

/* The entry with the guard record in a slot, with a reference; NULL: none. */
static core__compiled_entry *entry_at(core_compiled *compiled, uint32_t slot,
                                      const core__guard *guard)
{
    core__thread *self = core__thread_self();
    core__compiled_entry *entry;

    core__thread_enter(self);
    entry = atomic_load(&compiled->entries[slot]);
    if (entry && !(guards_hold(entry, guard) && core__entry_retain(entry)))
        entry = NULL;
    core__thread_leave(self);
    return entry;
}

/* Finds the entry for a call, with a reference; NULL: there is none.  *changed:
 * one that had the guard record was dropped. */
core__compiled_entry *core__entries_find(core_compiled *compiled,
                                         const core__guard *guard,
                                         core_tensor *const *inputs,
                                         bool *out_changed)
{
    for (uint32_t i = 0; i < compiled->limit; i++) {
        core__compiled_entry *entry = entry_at(compiled, i, guard);
        core__entry_match match;

        if (!entry)
            continue;
        match = core__entry_check(entry, inputs);
        if (match == CORE__ENTRY_HOLDS)
            return entry;
        *out_changed |= !entry->created;
        if (match == CORE__ENTRY_GONE)
            core__entries_remove(compiled, i, entry, true);
        core__entry_release(entry);
    }
    return NULL;
}

/* Removes all entries that cannot hold again.  True if there is a place now. */
bool core__entries_sweep(core_compiled *compiled)
{
    core__thread *self = core__thread_self();

    for (uint32_t i = 0; i < compiled->limit; i++) {
        core__compiled_entry *entry;

        core__thread_enter(self);
        entry = atomic_load(&compiled->entries[i]);
        if (entry && !core__entry_retain(entry))
            entry = NULL;
        core__thread_leave(self);
        if (entry && core__entry_is_gone(entry))
            core__entries_remove(compiled, i, entry, true);
        core__entry_release(entry);
    }
    return atomic_load(&compiled->nentries) < compiled->limit;
}

/* The slot for an entry of a call; NO_SLOT: another thread has added an
 * equal one, or all slots are in use.  Under the lock, so no entry is
 * removed meanwhile. */
static uint32_t slot_for(const core_compiled *compiled,
                         const core__guard *guard, core_tensor *const *inputs)
{
    uint32_t slot = NO_SLOT;

    for (uint32_t i = compiled->limit; i-- > 0;) {
        const core__compiled_entry *other = atomic_load(&compiled->entries[i]);

        if (!other)
            slot = i;
        else if (guards_hold(other, guard) &&
                 core__entry_check(other, inputs) == CORE__ENTRY_HOLDS)
            return NO_SLOT;
    }
    return slot;
}

/* Adds an entry if it has a slot.  Takes over a reference of it, whose call has
 * been made. */
void core__entries_add(core_compiled *compiled, const core__guard *guard,
                       core_tensor *const *inputs, core__compiled_entry *entry)
{
    uint32_t slot;

    core__compiled_lock();
    slot = slot_for(compiled, guard, inputs);
    if (slot != NO_SLOT) {
        atomic_store(&compiled->entries[slot], entry);
        atomic_fetch_add(&compiled->nentries, 1);
    }
    core__compiled_unlock();
    if (slot != NO_SLOT)
        return;
    core__compiled_note_past(compiled, entry);
    core__entry_release(entry);
}

/* Frees the slot of the oldest entry that was not recorded. */
void core__entries_make_room(core_compiled *compiled)
{
    core__thread *self = core__thread_self();
    core__compiled_entry *oldest = NULL;
    uint32_t slot = 0;

    if (atomic_load(&compiled->nentries) < compiled->limit)
        return;
    core__thread_enter(self);
    for (uint32_t i = 0; i < compiled->limit; i++) {
        core__compiled_entry *entry = atomic_load(&compiled->entries[i]);

        if (!entry || !entry->replaceable ||
            (oldest && entry->recording > oldest->recording))
            continue;
        oldest = entry;
        slot = i;
    }
    if (oldest && !core__entry_retain(oldest))
        oldest = NULL;
    core__thread_leave(self);
    if (oldest)
        core__entries_remove(compiled, slot, oldest, false);
    core__entry_release(oldest);
}

/* True if an entry can make room. */
bool core__entries_replaceable(core_compiled *compiled)
{
    core__thread *self = core__thread_self();
    bool found = false;

    core__thread_enter(self);
    for (uint32_t i = 0; i < compiled->limit && !found; i++) {
        const core__compiled_entry *entry = atomic_load(&compiled->entries[i]);

        found = entry && entry->replaceable;
    }
    core__thread_leave(self);
    return found;
}
