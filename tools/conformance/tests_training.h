/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* tests_training.h: the work of level training, so that its operators can be
 * listed. */

#ifndef CONFORMANCE_TESTS_TRAINING_H
#define CONFORMANCE_TESTS_TRAINING_H

#include "suite.h"

/* Does on a device what the tests of gradients and of the model do, without
 * checking the results. */
core_status training_work(suite *self, core_device *device);

/* Writes the names of the operators with kernels that this work calls; the
 * list ends with "…" if there are more.  Returns false if it failed. */
bool training_list_needs(suite *self, char *text, size_t capacity);

#endif
