/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* linalg.cu: Cholesky and QR factorisations, with one block per matrix, and
 * triangular systems, with one thread per column of the unknown; all in f64. */

#include "block.h"

#include <gpu/shared_linalg.h>

GPU_DEVICE double get(const gpu_factor &p, const void *from, int64_t i)
{
    return p.dtype == GPU_F64 ? ((const double *)from)[i]
                              : ((const float *)from)[i];
}
GPU_DEVICE void put(const gpu_factor &p, void *to, int64_t i, double x)
{
    if (p.dtype == GPU_F64)
        ((double *)to)[i] = x;
    else
        ((float *)to)[i] = (float)x;
}

/* scratch: the lower factor.  Stops at a minor that is not positive. */
GPU_KERNEL_COOPERATIVE(linalg_cholesky, gpu_factor)
{
    GPU_SHARED double shared[256];
    int64_t n = p.rows;

    for (int64_t b = gpu_block.x; b < p.batch; b += gpu_grid.x) {
        double *l = p.scratch + b * n * n;
        int64_t at = b * n * n, minor = 0;

        for (int64_t j = 0; j < n; j++) {
            double sum = 0, root;

            for (int64_t k = gpu_thread.x; k < j; k += 256)
                sum += l[j * n + k] * l[j * n + k];
            sum = get(p, p.from, at + j * n + j) - gpu_block_sum(shared, sum);
            if (minor == 0 && !(sum > 0))
                minor = j + 1;
            root = sqrt(sum);
            for (int64_t i = gpu_thread.x; i < n; i += 256) {
                double x =
                    get(p, p.from, at + (p.upper ? j * n + i : i * n + j));

                for (int64_t k = 0; i > j && k < j; k++)
                    x -= l[i * n + k] * l[j * n + k];
                x = i < j ? 0 : i == j ? root : x / root;
                l[i * n + j] = minor != 0 ? 0 : x;
            }
            gpu_barrier();
        }
        for (int64_t i = gpu_thread.x; i < n * n; i += 256)
            put(p, p.to, at + i, p.upper ? l[i % n * n + i / n] : l[i]);
        if (gpu_thread.x == 0) {
            gpu_write_i64((char *)p.info + b * gpu_bytes(p.info_dtype),
                          p.info_dtype, minor);
            if (minor != 0 && p.check)
                gpu_fail(p.error, GPU_NOT_POSITIVE, p.call, b);
        }
    }
}

/* a = (1 - tau v v^T) a, where a is m by n and v is 0 before k. */
GPU_DEVICE void apply(double *a, int64_t m, int64_t n, const double *v,
                      int64_t k, double tau)
{
    for (int64_t j = gpu_thread.x; j < n; j += 256) {
        double sum = 0;

        for (int64_t i = k; i < m; i++)
            sum += v[i] * a[i * n + j];
        for (int64_t i = k; i < m; i++)
            a[i * n + j] -= tau * sum * v[i];
    }
}

/* The Householder reflection of column k of r, stored in v; returns its
 * factor. */
GPU_DEVICE double reflect(double *shared, const double *r, int64_t m, int64_t n,
                          int64_t k, double *v)
{
    double below = 0, head = r[k * n + k], norm_, tau = 0;

    for (int64_t i = k + 1 + gpu_thread.x; i < m; i += 256)
        below += r[i * n + k] * r[i * n + k];
    below = gpu_block_sum(shared, below);
    norm_ = sqrt(head * head + below);
    norm_ = head > 0 ? -norm_ : norm_;
    if (below != 0)
        tau = (norm_ - head) / norm_;
    for (int64_t i = k + gpu_thread.x; i < m; i += 256)
        v[i] = i == k ? 1 : below != 0 ? r[i * n + k] / (head - norm_) : 0;
    gpu_barrier();
    return tau;
}

/* scratch, for each matrix: a copy, Q, the vectors, and their factors. */
GPU_KERNEL_COOPERATIVE(linalg_qr, gpu_factor)
{
    GPU_SHARED double shared[256];
    int64_t m = p.rows, n = p.columns, steps = m < n ? m : n;
    int64_t each = m * n + m * p.q_columns + steps * (m + 1);

    for (int64_t b = gpu_block.x; b < p.batch; b += gpu_grid.x) {
        double *a = p.scratch + b * each, *q = a + m * n;
        double *v = q + m * p.q_columns, *factors = v + steps * m;

        for (int64_t i = gpu_thread.x; i < m * n; i += 256)
            a[i] = get(p, p.from, b * m * n + i);
        for (int64_t i = gpu_thread.x; i < m * p.q_columns; i += 256)
            q[i] = i / p.q_columns == i % p.q_columns;
        gpu_barrier();
        for (int64_t k = 0; k < steps; k++) {
            double tau = reflect(shared, a, m, n, k, v + k * m);

            if (gpu_thread.x == 0)
                factors[k] = tau;
            apply(a, m, n, v + k * m, k, tau);
            gpu_barrier();
        }
        for (int64_t k = steps; p.q_columns > 0 && k-- > 0;)
            apply(q, m, p.q_columns, v + k * m, k, factors[k]);
        gpu_barrier();
        for (int64_t i = gpu_thread.x; i < p.r_rows * n; i += 256)
            put(p, p.to, b * p.r_rows * n + i, i / n <= i % n ? a[i] : 0);
        for (int64_t i = gpu_thread.x; i < m * p.q_columns; i += 256)
            put(p, p.to_q, b * m * p.q_columns + i, q[i]);
        gpu_barrier();
    }
}

/* scratch: the unknowns, in place.  The elements of a row of the matrix, and of
 * the unknown, are row, column and step apart. */
GPU_DEVICE void substitute(const gpu_factor &p, int64_t a, int64_t n,
                           int64_t row, int64_t column, bool upper, double *x,
                           int64_t step)
{
    for (int64_t k = 0; k < n; k++) {
        int64_t i = upper ? n - 1 - k : k;
        double sum = x[i * step];

        for (int64_t j = upper ? i + 1 : 0; j < (upper ? n : i); j++)
            sum -= get(p, p.from, a + i * row + j * column) * x[j * step];
        x[i * step] =
            p.unit ? sum : sum / get(p, p.from, a + i * row + i * column);
    }
}

/* Solves self X = B or X self = B, where X is rows x columns; `to` contains
 * B. */
GPU_KERNEL(linalg_solve, gpu_factor)
{
    int64_t m = p.rows, k = p.columns, lines = p.left ? k : m;
    int64_t n = p.left ? m : k, step = (int64_t)gpu_step();

    for (int64_t i = (int64_t)gpu_first(); i < p.batch * lines; i += step) {
        int64_t b = i / lines, j = i % lines;
        int64_t first = b * m * k + (p.left ? j : j * k);
        int64_t stride = p.left ? k : 1;
        double *x = p.scratch + first;

        for (int64_t e = 0; e < n; e++)
            x[e * stride] = get(p, p.to, first + e * stride);
        /* X A = B is A^T X^T = B^T */
        if (p.left)
            substitute(p, b * n * n, n, n, 1, p.upper != 0, x, stride);
        else
            substitute(p, b * n * n, n, 1, n, p.upper == 0, x, stride);
        for (int64_t e = 0; e < n; e++)
            put(p, p.to, first + e * stride, x[e * stride]);
    }
}
