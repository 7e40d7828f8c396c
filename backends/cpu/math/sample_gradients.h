/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* sample_gradients.h: how samples move with the parameters of their
 * distribution, at a fixed quantile. */

#ifndef CPU_SAMPLE_GRADIENTS_H
#define CPU_SAMPLE_GRADIENTS_H

/* dx/da of a sample x of the gamma distribution with shape a and scale 1. */
double cpu_gamma_slope(double a, double x);

/* dx/da / (1 - x) of a sample x of the beta distribution with a and
 * total - a. */
double cpu_dirichlet_slope(double x, double a, double total);

#endif
