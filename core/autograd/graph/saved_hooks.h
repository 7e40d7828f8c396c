/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* saved_hooks.h: saved-tensor hooks, with which a program packs tensors when
 * they are saved and unpacks them when they are used.
 *
 * A packed slot stores the handle from pack and the tensor's metadata.  The
 * history stays in the slot; pack never sees it. */

#ifndef CORE_AUTOGRAD_SAVED_HOOKS_H
#define CORE_AUTOGRAD_SAVED_HOOKS_H

#include "autograd/graph/autograd_meta.h"

#include <libcore/saved.h>

typedef struct core__saved core__saved; /* saved.h */

typedef struct core__saved_hooks core__saved_hooks;
struct core__saved_hooks {
    _Atomic uint32_t references; /* of the thread's list and of slots */
    core_saved_hooks_info info;
    core__saved_hooks *outer; /* referenced */
};

typedef struct core__packed {
    core__saved_hooks *hooks; /* referenced */
    void *handle;
    core_device *device;
    bool result; /* of the node's own forward */
    uint8_t dtype;
    uint8_t ndim;
    int64_t sizes[];
} core__packed;

/* Arrays of unpacked lists, kept until the formula has finished. */
typedef struct core__unpacked {
    struct core__unpacked *next;
    uint32_t count;
    core_tensor *tensors[]; /* owned */
} core__unpacked;

core_status core__saved_hooks_new(const core_saved_hooks_info *info,
                                  core__saved_hooks **out_hooks);
void core__saved_hooks_release(core__saved_hooks *hooks);

/* content: without history.  Fills kind and value of the slot. */
core_status core__saved_pack(core__saved *saved, core_tensor *content,
                             bool result);
void core__packed_release(core__packed *packed);

/* The tensor of a packed slot, owned; with its history if needed.  No lock is
 * held.  node may be NULL if the slot is not a result. */
core_status core__packed_unpack(core_node *node, const core__saved *saved,
                                bool history, core_tensor **out_tensor);
/* The same for lists, whose elements may be packed. */
core_status core__packed_list_unpack(core_node *node, core__saved *saved,
                                     bool history, core_value *out_value,
                                     core__unpacked **lists);
void core__unpacked_release(core__unpacked *lists);

#endif
