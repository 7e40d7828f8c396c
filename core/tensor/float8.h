/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* float8.h: conversion of single 8-bit floats (OCP 8-bit Floating Point
 * Specification 1.0, 2023).
 *
 *   f8e4m3   bias 7; up to 448; no infinity, one NaN of each sign (0x7f)
 *   f8e5m2   bias 15; up to 57344; infinity 0x7c, NaN above it */

#ifndef CORE_TENSOR_FLOAT8_H
#define CORE_TENSOR_FLOAT8_H

#include <libcore/plugin.h>

#include <stdint.h>

/* Rounds to nearest, ties to even; too large values become infinity or, where
 * there is none, NaN. */
uint8_t core__f64_to_f8(core_dtype dtype, double value);
double core__f8_to_f64(core_dtype dtype, uint8_t code);

#endif
