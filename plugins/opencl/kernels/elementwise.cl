/* SPDX-License-Identifier: Apache-2.0
 * Copyright The libcore authors */

/* elementwise.cl: the functions that expressions of backends/expressions call
 * and OpenCL does not have.  elementwise.c writes the kernels around an
 * expression behind this. */

#if FLOAT
static T sigmoid(T x)
{
    T e = exp(-fabs(x));

    return x < 0 ? e / (1 + e) : 1 / (1 + e);
}

static T floor_divide(T a, T b)
{
    T rest, whole, down;

    if (b == 0)
        return a / b;
    rest = fmod(a, b);
    whole = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0))
        whole -= 1;
    if (whole == 0)
        return copysign((T)0, a / b);
    down = floor(whole);
    return whole - down > (T)0.5 ? down + 1 : down;
}

static T floor_modulo(T a, T b)
{
    T rest = fmod(a, b);

    return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}

static T lerp(T a, T b, T weight)
{
    return weight < (T)0.5 ? a + weight * (b - a)
                           : b - (b - a) * (1 - weight);
}

/* x rounded to the dtype. */
static T rounded(T x)
{
#if IDT == F16n
    return get_f16(put_f16(x));
#elif IDT == BF16n
    return get_bf16(put_bf16(x));
#else
    return x;
#endif
}

static T finite(T x)
{
#if IDT == F16n
    T most = 65504;
#elif IDT == BF16n
    T most = (T)3.3895313892515355e38;
#elif IDT == F32n
    T most = FLT_MAX;
#else
    T most = MOST;
#endif

    return x == (T)INFINITY ? most : x == -(T)INFINITY ? -most : x;
}

static T maximum(T a, T b)
{
    return a > b || a != a ? a : b;
}

static T minimum(T a, T b)
{
    return a < b || a != a ? a : b;
}

static T clamped(T x, T low, T high)
{
    x = x < low || low != low ? low : x;
    return x > high || high != high ? high : x;
}

static int sign_bit(T x)
{
    return signbit(x) != 0;
}

static T logaddexp(T a, T b)
{
    T high = fmax(a, b);

    if (a != a || b != b)
        return a + b;
    if (a == b && isinf(a))
        return a;
    return high + log1p(exp(-fabs(a - b)));
}

static T logaddexp2(T a, T b)
{
    T high = fmax(a, b);

    if (a != a || b != b)
        return a + b;
    if (a == b && isinf(a))
        return a;
    return high + log1p(exp2(-fabs(a - b))) * (T)1.4426950408889634;
}

static T gelu(T x)
{
    return (T)0.5 * x * erfc(x * (T)-0.70710678118654752);
}

static T gelu_inner(T x)
{
    return (T)0.79788456080286536 * (x + (T)0.044715 * x * x * x);
}

static T gelu_tanh(T x)
{
    return x * sigmoid(2 * gelu_inner(x));
}

static T gelu_slope(T x)
{
    return (T)0.5 * erfc(x * (T)-0.70710678118654752) +
           x * exp((T)-0.5 * x * x) * (T)0.39894228040143268;
}

static T gelu_tanh_slope(T x)
{
    T t = tanh(gelu_inner(x));
    T inner = (T)0.79788456080286536 * (1 + (T)0.134145 * x * x);

    return (T)0.5 * (1 + t) + (T)0.5 * x * (1 - t * t) * inner;
}

static T silu_slope(T x)
{
    T s = sigmoid(x);

    return s * (1 + x * (1 - s));
}

static T tanh_of_softplus(T x)
{
    /* tanh(log(1 + e)) = (e e + 2 e) / (e e + 2 e + 2) */
    T e = exp(fmin(x, (T)20)), n = e * (e + 2);

    return x > 20 ? 1 : n / (n + 2);
}

static T mish_slope(T x)
{
    T t = tanh_of_softplus(x);

    return t + x * sigmoid(x) * (1 - t * t);
}
#else
static T divide(T a, T b, int *bad)
{
    if (b == 0) {
        *bad = 1;
        return 0;
    }
    /* The only quotient that overflows; of u8, (T)-1 is 255. */
    return (T)((T)-1 < 0 && b == (T)-1 ? (T)(0 - a) : a / b);
}

static T modulo(T a, T b, int *bad)
{
    if (b == 0) {
        *bad = 1;
        return 0;
    }
    return (T)((T)-1 < 0 && b == (T)-1 ? (T)0 : a % b);
}

static T floor_divide(T a, T b, int *bad)
{
    T whole = divide(a, b, bad), rest = modulo(a, b, bad);

    return (T)(rest != 0 && (b < 0) != (rest < 0) ? whole - 1 : whole);
}

static T floor_modulo(T a, T b, int *bad)
{
    T rest = modulo(a, b, bad);

    return (T)(rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest);
}

static T power(T a, T b)
{
    T result = 1;

    if (b < 0)
        return (T)(a == 1 ? 1 : a == (T)-1 ? (b & 1 ? -1 : 1) : 0);
    for (; b != 0; b = (T)(b >> 1)) {
        if (b & 1)
            result = (T)(result * a);
        a = (T)(a * a);
    }
    return result;
}

static T gcd(T a, T b)
{
    while (b != 0) {
        T rest = (T)((T)-1 < 0 && b == (T)-1 ? 0 : a % b);

        a = b;
        b = rest;
    }
    return (T)(a < 0 ? -a : a);
}

static T lcm(T a, T b)
{
    T common = gcd(a, b);
    T most = (T)(common == 0 ? 0 : a / common * b);

    return (T)(most < 0 ? -most : most);
}

static T shift_left(T a, T b)
{
    return (T)(b < 0 || b >= (int)sizeof(T) * 8 ? 0
                                                : (ulong)a << (ulong)b);
}

static T shift_right(T a, T b)
{
    if (b < 0 || b >= (int)sizeof(T) * 8)
        return (T)(a < 0 ? -1 : 0);
    return (T)(a >> b);
}
#endif

static uint strided(const loop *l, ulong at, long *offsets)
{
    uint left = (uint)at;

    for (uint d = 0; d < l->ndim; d++) {
        uint size = l->sizes[d], next = left / size, k = left - next * size;

        for (int j = 0; j < OPERANDS; j++)
            offsets[j] += k * l->strides[j][d];
        left = next;
    }
    return left;
}
