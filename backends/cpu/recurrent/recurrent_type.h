/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* recurrent_type.h: recurrent layers in one type; included by recurrent.c with
 * TYPE, T(name) and L(function) of vecmath.h defined. */

static void T(multiply_in_place)(bool transposed, int64_t lines, int64_t n,
                                 int64_t k, const TYPE *from, int64_t distance,
                                 const TYPE *weight, int64_t weight_distance,
                                 TYPE *c, int64_t c_distance)
{
    L(cpu_gemm)
    (false, transposed, lines, n, k, 1, from, distance, weight, weight_distance,
     1, c, c_distance);
}

/* ---------------------------------------------------------------- forward -- */

/* Adds w_hh h to the lines of `to`, which are `distance` apart. */
static void T(add_hidden)(const layer *a, const TYPE *h, int64_t lines,
                          const part *p, TYPE *to, int64_t distance)
{
    const TYPE *weight = a->weight;

    if (lines <= 0)
        return;
    for (int64_t gate = 0; gate < a->gates; gate++) {
        TYPE *c = to + place_of(a, gate) * a->n;

        if (!a->panels)
            T(multiply_in_place)
        (true, lines, a->n, a->n, h, a->n, weight + gate * a->n * a->n, a->n, c,
         distance);
        for (int64_t u = p->unit; a->panels && u < p->unit_end; u += a->columns)
            multiply_panel(a, (const float *)(const void *)h, a->n, a->n,
                           gate * a->blocks + u / a->columns, lines,
                           (float *)(void *)(c + u), distance,
                           smaller(a->columns, a->n - u));
    }
}

/* What the product is added to: the input's part and the bias. */
static void T(prepare)(const layer *a, int64_t row, const part *p, TYPE *to)
{
    const TYPE *x = (const TYPE *)a->input + row * a->gates * a->n;
    const TYPE *bias = a->bias;

    for (int64_t gate = 0; gate < a->gates; gate++) {
        bool apart = place_of(a, gate) != gate;
        TYPE *c = to + place_of(a, gate) * a->n;
        int64_t first = gate * a->n;

        for (int64_t u = p->unit; u < p->unit_end; u++)
            c[u] = apart ? (bias ? bias[first + u] : 0)
                         : x[first + u] + (bias ? bias[first + u] : 0);
    }
}

/* Gates are input, forget, cell and output.  c' = f c + i g, h' = o tanh(c') */
static void T(lstm_cell)(int64_t n, int64_t begin, int64_t end, const TYPE *c,
                         TYPE *s, TYPE *h)
{
    MATH_LOOP
    for (int64_t u = begin; u < end; u++) {
        TYPE i = L(sigmoid)(s[u]), f = L(sigmoid)(s[n + u]);
        TYPE g = L(tanh)(s[2 * n + u]), o = L(sigmoid)(s[3 * n + u]);
        TYPE next = f * c[u] + i * g;

        s[u] = i;
        s[n + u] = f;
        s[2 * n + u] = g;
        s[3 * n + u] = o;
        s[4 * n + u] = next;
        h[u] = o * L(tanh)(next);
    }
}

/* n = tanh(x + r m), h' = n + z (h - n); x: the input's part of the new gate,
 * m: the hidden one. */
static void T(gru_cell)(int64_t n, int64_t begin, int64_t end, const TYPE *x,
                        const TYPE *before, TYPE *s, TYPE *h)
{
    MATH_LOOP
    for (int64_t u = begin; u < end; u++) {
        TYPE r = L(sigmoid)(s[u]), z = L(sigmoid)(s[n + u]);
        TYPE fresh = L(tanh)(x[u] + r * s[3 * n + u]);

        s[u] = r;
        s[n + u] = z;
        s[2 * n + u] = fresh;
        h[u] = fresh + z * (before[u] - fresh);
    }
}

static void T(plain_cell)(kind kind, int64_t begin, int64_t end, TYPE *h)
{
    for (int64_t u = begin; u < end && kind == RELU; u++)
        h[u] = h[u] < 0 ? 0 : h[u];
    if (kind == RELU)
        return;
    MATH_LOOP
    for (int64_t u = begin; u < end; u++)
        h[u] = L(tanh)(h[u]);
}

/* row: of a sample at this step; before: at the step before, or -1. */
static void T(cell)(const layer *a, int64_t sample, int64_t row, int64_t before,
                    const part *p)
{
    int64_t n = a->n, begin = p->unit, end = p->unit_end;
    TYPE *saved = (TYPE *)a->workspace + row * a->saved * n;
    TYPE *h = (TYPE *)a->output + row * n;
    const TYPE *c =
        before < 0 ? (const TYPE *)a->cx + sample * n
                   : (const TYPE *)a->workspace + before * a->saved * n + 4 * n;
    const TYPE *hidden = before < 0 ? (const TYPE *)a->hx + sample * n
                                    : (const TYPE *)a->output + before * n;

    if (a->kind == LSTM)
        T(lstm_cell)(n, begin, end, c, saved, h);
    else if (a->kind == GRU)
        T(gru_cell)
    (n, begin, end, (const TYPE *)a->input + (row * 3 + 2) * n, hidden, saved,
     h);
    else T(plain_cell)(a->kind, begin, end, h);
}

/* One iteration for a part. */
static void T(forward)(const layer *a, int64_t iteration, const part *p)
{
    int64_t n = a->n, step = step_at(a, iteration);
    int64_t end = smaller(p->end, count_at(a, step)), row = p->row;
    int64_t shared = continued(a, iteration), first = a->starts[step];
    int64_t past = shared > 0 ? a->starts[step_at(a, iteration - 1)] : 0;
    int64_t width = a->saved > 0 ? a->saved * n : n;
    TYPE *to = (TYPE *)(a->saved > 0 ? a->workspace : a->output);
    int64_t split = shared < row ? row : shared < end ? shared : end;

    if (row >= end)
        return;
    for (int64_t i = row; i < end; i++)
        T(prepare)(a, first + i, p, to + (first + i) * width);
    T(add_hidden)
    (a, (const TYPE *)a->output + (past + row) * n, split - row, p,
     to + (first + row) * width, width);
    T(add_hidden)
    (a, (const TYPE *)a->hx + split * n, end - split, p,
     to + (first + split) * width, width);
    for (int64_t i = row; i < end; i++)
        T(cell)(a, i, first + i, i < shared ? past + i : -1, p);
}

/* Without a step the last states are the first ones. */
static void T(copy_states)(const layer *a)
{
    size_t bytes = (size_t)(a->batch * a->n) * sizeof(TYPE);

    if (bytes == 0)
        return;
    memcpy(a->hy, a->hx, bytes);
    if (a->kind == LSTM)
        memcpy(a->cy, a->cx, bytes);
}

/* The states of each sample at the end. */
static void T(last_states)(const layer *a)
{
    size_t bytes = (size_t)a->n * sizeof(TYPE);
    int64_t step = a->reverse ? 0 : a->steps - 1, n = a->n;

    if (a->steps == 0) {
        T(copy_states)(a);
        return;
    }
    for (int64_t i = 0; i < a->batch; i++) {
        int64_t row;

        while (count_at(a, step) <= i)
            step--;
        row = a->starts[step] + i;
        memcpy((TYPE *)a->hy + i * n, (const TYPE *)a->output + row * n, bytes);
        if (a->kind == LSTM)
            memcpy((TYPE *)a->cy + i * n,
                   (const TYPE *)a->workspace + (row * 5 + 4) * n, bytes);
    }
}

/* --------------------------------------------------------------- backward -- */

/* The gradients of the last states, from which those before follow. */
static void T(first_gradients)(const layer *a)
{
    const void *from[2] = {a->grad_hy, a->grad_cy};
    void *to[2] = {a->to_hx, a->kind == LSTM ? a->to_cx : NULL};
    size_t bytes = (size_t)(a->batch * a->n) * sizeof(TYPE);

    for (int i = 0; i < 2; i++)
        if (to[i] && from[i])
            memcpy(to[i], from[i], bytes);
        else if (to[i])
            memset(to[i], 0, bytes);
}

/* Adds to the gradient of the hidden state what the gates of an iteration pass
 * on. */
static void T(add_gates)(const layer *a, int64_t step, const part *p)
{
    int64_t n = a->n, k = a->gates * n;
    int64_t lines = smaller(p->end, count_at(a, step)) - p->row;
    const TYPE *from =
        (const TYPE *)a->to_hidden + (a->starts[step] + p->row) * k;
    TYPE *to = (TYPE *)a->to_hx + p->row * n;

    if (lines <= 0)
        return;
    if (!a->panels)
        T(multiply_in_place)
    (false, lines, n, k, from, k, a->weight, n, to, n);
    for (int64_t u = p->unit; a->panels && u < p->unit_end; u += a->columns)
        multiply_panel(a, (const float *)(const void *)from, k, k,
                       u / a->columns, lines, (float *)(void *)(to + u), n,
                       smaller(a->columns, n - u));
}

/* w: gradients of the saved numbers, or zeros.  dh and dc become those of the
 * states before, dh without the gates' part. */
static void T(lstm_gradient)(int64_t n, int64_t begin, int64_t end,
                             const TYPE *s, const TYPE *c, const TYPE *w,
                             TYPE *dh, TYPE *dc, TYPE *to)
{
    MATH_LOOP
    for (int64_t u = begin; u < end; u++) {
        TYPE i = s[u], f = s[n + u], g = s[2 * n + u], o = s[3 * n + u];
        TYPE t = L(tanh)(s[4 * n + u]), h = dh[u];
        TYPE next = dc[u] + h * o * (1 - t * t);
        TYPE x = next * g, y = next * c[u], z = next * i, v = h * t;

        if (w) {
            next += w[4 * n + u];
            x = next * g + w[u];
            y = next * c[u] + w[n + u];
            z = next * i + w[2 * n + u];
            v += w[3 * n + u];
        }
        to[u] = x * i * (1 - i);
        to[n + u] = y * f * (1 - f);
        to[2 * n + u] = z * (1 - g * g);
        to[3 * n + u] = v * o * (1 - o);
        dc[u] = next * f;
        dh[u] = 0;
    }
}

static void T(gru_gradient)(int64_t n, int64_t begin, int64_t end,
                            const TYPE *s, const TYPE *before, const TYPE *w,
                            TYPE *dh, TYPE *to, TYPE *hidden)
{
    MATH_LOOP
    for (int64_t u = begin; u < end; u++) {
        TYPE r = s[u], z = s[n + u], fresh = s[2 * n + u], m = s[3 * n + u];
        TYPE h = dh[u], dn = h * (1 - z) + (w ? w[2 * n + u] : 0);
        TYPE dz = h * (before[u] - fresh) + (w ? w[n + u] : 0), dr;

        dn *= 1 - fresh * fresh;
        dr = dn * m + (w ? w[u] : 0);
        to[u] = hidden[u] = dr * r * (1 - r);
        to[n + u] = hidden[n + u] = dz * z * (1 - z);
        to[2 * n + u] = dn;
        hidden[2 * n + u] = dn * r + (w ? w[3 * n + u] : 0);
        dh[u] = h * z;
    }
}

static void T(plain_gradient)(kind kind, int64_t begin, int64_t end,
                              const TYPE *h, TYPE *dh, TYPE *to)
{
    for (int64_t u = begin; u < end; u++) {
        to[u] =
            kind == RELU ? (h[u] > 0 ? dh[u] : 0) : dh[u] * (1 - h[u] * h[u]);
        dh[u] = 0;
    }
}

/* As `cell`. */
static void T(gradient)(const layer *a, int64_t sample, int64_t row,
                        int64_t before, const part *p)
{
    int64_t n = a->n, begin = p->unit, end = p->unit_end;
    const TYPE *s = (const TYPE *)a->workspace + row * a->saved * n;
    const TYPE *w =
        a->grad_saved ? (const TYPE *)a->grad_saved + row * a->saved * n : NULL;
    const TYPE *grad = a->grad_output;
    TYPE *dh = (TYPE *)a->to_hx + sample * n;
    TYPE *to = (TYPE *)a->to_input + row * a->gates * n;

    for (int64_t u = begin; grad && u < end; u++)
        dh[u] += grad[row * n + u];
    if (a->kind == LSTM)
        T(lstm_gradient)
    (n, begin, end, s,
     before < 0 ? (const TYPE *)a->cx + sample * n
                : (const TYPE *)a->workspace + (before * 5 + 4) * n,
     w, dh, (TYPE *)a->to_cx + sample * n, to);
    else if (a->kind == GRU)
        T(gru_gradient)(n, begin, end, s,
                        before < 0 ? (const TYPE *)a->hx + sample * n
                                   : (const TYPE *)a->output + before * n,
                        w, dh, to, (TYPE *)a->to_hidden + row * 3 * n);
    else T(plain_gradient)(a->kind, begin, end,
                           (const TYPE *)a->output + row * n, dh, to);
}

/* One iteration for a part, the last step first; one after the last one adds
 * what the first step passes on to the first states. */
static void T(backward)(const layer *a, int64_t iteration, const part *p)
{
    int64_t at = a->steps - 1 - iteration, step, end, shared, first, past;

    if (iteration > 0)
        T(add_gates)(a, step_at(a, at + 1), p);
    if (at < 0)
        return;
    step = step_at(a, at);
    end = smaller(p->end, count_at(a, step));
    shared = continued(a, at);
    first = a->starts[step];
    past = shared > 0 ? a->starts[step_at(a, at - 1)] : 0;
    for (int64_t i = p->row; i < end; i++)
        T(gradient)(a, i, first + i, i < shared ? past + i : -1, p);
}
