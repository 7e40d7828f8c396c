/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* cell_type.h: the cells of LSTM and GRU in one type; included by cell.c with
 * TYPE, T(name) and L(function) of vecmath.h defined. */

/* The sum of both parts of a block of gates and their biases, into `to`. */
static void T(gather)(const cell *a, int64_t row, int64_t block, bool input,
                      bool hidden, TYPE *to)
{
    int64_t n = a->units, at = (row * a->gates + block) * n;
    const TYPE *x = input ? a->input : NULL, *h = hidden ? a->hidden : NULL;
    const TYPE *b = input ? a->input_bias : NULL;
    const TYPE *c = hidden ? a->hidden_bias : NULL;

    for (int64_t u = 0; u < n; u++)
        to[u] = x ? x[at + u] : 0;
    for (int64_t u = 0; b && u < n; u++)
        to[u] += b[block * n + u];
    for (int64_t u = 0; h && u < n; u++)
        to[u] += h[at + u];
    for (int64_t u = 0; c && u < n; u++)
        to[u] += c[block * n + u];
}

/* Once for all loops, as they are long when inlined. */
static void __attribute__((noinline)) T(squash)(TYPE *x, int64_t n)
{
    MATH_LOOP
    for (int64_t u = 0; u < n; u++)
        x[u] = L(sigmoid)(x[u]);
}

/* y may be x. */
static void __attribute__((noinline)) T(bend)(const TYPE *x, TYPE *y, int64_t n)
{
    MATH_LOOP
    for (int64_t u = 0; u < n; u++)
        y[u] = L(tanh)(x[u]);
}

/* Gates are input, forget, cell and output.  c' = f c + i g, h' = o tanh(c') */
static void T(lstm_row)(const cell *a, int64_t row)
{
    int64_t n = a->units;
    TYPE *s = (TYPE *)a->saved + row * 4 * n, *h = (TYPE *)a->h + row * n;
    TYPE *next = (TYPE *)a->c + row * n;
    const TYPE *c = (const TYPE *)a->state + row * n;

    for (int64_t k = 0; k < 4; k++)
        T(gather)(a, row, k, true, true, s + k * n);
    T(squash)(s, 2 * n);
    T(bend)(s + 2 * n, s + 2 * n, n);
    T(squash)(s + 3 * n, n);
    for (int64_t u = 0; u < n; u++)
        next[u] = s[n + u] * c[u] + s[u] * s[2 * n + u];
    T(bend)(next, h, n);
    for (int64_t u = 0; u < n; u++)
        h[u] *= s[3 * n + u];
}

/* Saves reset, update and new gate, the state, and the hidden part m of the new
 * gate.  n = tanh(x + r m), h' = n + z (h - n) */
static void T(gru_row)(const cell *a, int64_t row)
{
    int64_t n = a->units;
    TYPE *s = (TYPE *)a->saved + row * 5 * n, *h = (TYPE *)a->h + row * n;
    const TYPE *before = (const TYPE *)a->state + row * n;

    T(gather)(a, row, 0, true, true, s);
    T(gather)(a, row, 1, true, true, s + n);
    T(gather)(a, row, 2, true, false, s + 2 * n);
    T(gather)(a, row, 2, false, true, s + 4 * n);
    T(squash)(s, 2 * n);
    for (int64_t u = 0; u < n; u++)
        s[2 * n + u] += s[u] * s[4 * n + u];
    T(bend)(s + 2 * n, s + 2 * n, n);
    for (int64_t u = 0; u < n; u++) {
        s[3 * n + u] = before[u];
        h[u] = s[2 * n + u] + s[n + u] * (before[u] - s[2 * n + u]);
    }
}

static void T(lstm_grad_row)(const cell *a, int64_t row)
{
    int64_t n = a->units;
    const TYPE *s = (const TYPE *)a->saved + row * 4 * n;
    const TYPE *before = (const TYPE *)a->state + row * n;
    const TYPE *grad_h = a->grad_h, *grad_c = a->grad_c;
    TYPE *to = (TYPE *)a->to_input + row * 4 * n;
    TYPE *state = (TYPE *)a->to_state + row * n;

    T(bend)((const TYPE *)a->c + row * n, state, n);
    for (int64_t u = 0; u < n; u++) {
        TYPE i = s[u], f = s[n + u], g = s[2 * n + u], o = s[3 * n + u];
        TYPE t = state[u], dh = grad_h ? grad_h[row * n + u] : 0;
        TYPE dc = dh * o * (1 - t * t) + (grad_c ? grad_c[row * n + u] : 0);

        to[u] = dc * g * i * (1 - i);
        to[n + u] = dc * before[u] * f * (1 - f);
        to[2 * n + u] = dc * i * (1 - g * g);
        to[3 * n + u] = dh * t * o * (1 - o);
        state[u] = dc * f;
    }
}

static void T(gru_grad_row)(const cell *a, int64_t row)
{
    int64_t n = a->units;
    const TYPE *s = (const TYPE *)a->saved + row * 5 * n;
    const TYPE *grad = (const TYPE *)a->grad_h + row * n;
    TYPE *x = (TYPE *)a->to_input + row * 3 * n;
    TYPE *h = (TYPE *)a->to_hidden + row * 3 * n;
    TYPE *state = (TYPE *)a->to_state + row * n;

    for (int64_t u = 0; u < n; u++) {
        TYPE r = s[u], z = s[n + u], fresh = s[2 * n + u];
        TYPE dn = grad[u] * (1 - z) * (1 - fresh * fresh);

        x[u] = h[u] = dn * s[4 * n + u] * r * (1 - r);
        x[n + u] = h[n + u] = grad[u] * (s[3 * n + u] - fresh) * z * (1 - z);
        x[2 * n + u] = dn;
        h[2 * n + u] = dn * r;
        state[u] = grad[u] * z;
    }
}

static void T(rows)(void *context, int64_t begin, int64_t end)
{
    const cell *a = context;

    for (int64_t row = begin; row < end; row++)
        if (a->backward && a->lstm)
            T(lstm_grad_row)(a, row);
        else if (a->backward)
            T(gru_grad_row)(a, row);
        else if (a->lstm)
            T(lstm_row)(a, row);
        else
            T(gru_row)(a, row);
}
