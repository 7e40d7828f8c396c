# SPDX-License-Identifier: Apache-2.0
# Copyright The libcore authors
"""The element-wise operators of all backends; __init__.py explains how an
expression is written."""

INFINITY = float("inf")


class Operator:
    """One operator: its expressions by class of types, and their parameters.

    output      type of the output where it is not that of the inputs
    types       of output and inputs, where they differ otherwise
    parameters  (position of the argument, default) of p0, p1, …
    choice      which of several variants a call takes (__init__.py)
    cost        0 for an addition to 6: how early a loop is split in threads
    setup       declarations before the loop, of names that expressions use
    wrap        the bits are right whether the type is signed or not
    halves      so common with bf16 that it has separate code on the CPU; or
                the expression of that code, from bits to bits; or the number
                of leading variants that have such code, beyond which `choice`
                chooses none for bf16
    beyond      (limit, expression): f32 elements beyond the limit take this
                expression where the backend's own function ends there
    special     number of arguments of special(…)
    """

    def __init__(self, name, inputs, forms, output=None, parameters=(),
                 choice="NONE", cost=0, types=None, outputs=1, setup="",
                 wrap=False, beyond=None, halves=False, special=0):
        self.name = name
        self.inputs = inputs
        self.forms = forms
        self.output = output
        self.parameters = parameters
        self.choice = choice
        self.cost = cost
        self.types = types
        self.outputs = outputs
        self.setup = setup
        self.wrap = wrap
        self.halves = halves
        self.beyond = beyond
        self.special = special


OPERATORS = []


def op(name, inputs, forms, **options):
    OPERATORS.append(Operator(name, inputs, forms, **options))


def unary(name, expression, cost=0, **options):
    op(name, 1, {"F": expression}, cost=cost, **options)


def compare(name, operator):
    expression = "a %s b" % operator
    op(name, 2, {"F": expression, "I": expression, "B": expression},
       output="bool")


# ------------------------------------------------------------- arithmetic --

op("abs", 1, {"F": "abs@(a)", "I": "(T)(a < 0 ? -a : a)"},
   halves="a & 0x7fff")
op("neg", 1, {"F": "-a", "I": "(T)-a"}, wrap=True,
   halves="a ^ 0x8000")
for name in "sign", "sgn":
    op(name, 1, {"F": "(T)((a > 0) - (a < 0))",
                 "I": "(T)((a > 0) - (a < 0))", "B": "a"})
for name in "ceil", "floor", "trunc", "round":
    op(name, 1, {"F": "%s@(a)" % name.replace("round", "rint"), "I": "a"},
       wrap=True)
op("round.decimals", 1,
   {"F": "up ? rint@(a * scale) / scale : rint@(a / scale) * scale",
    "I": "a"},
   parameters=[(1, 0)], cost=1,
   setup="const int up = q->i[0] >= 0; "
         "const T scale = (T)math_power_of_ten(up ? q->i[0] : -q->i[0]);")
unary("frac", "a - trunc@(a)")
unary("reciprocal", "1 / a", halves=True)
unary("sqrt", "sqrt@(a)", halves=True)
unary("rsqrt", "1 / sqrt@(a)", halves=True)
unary("deg2rad", "a * (T)0.017453292519943295")
unary("rad2deg", "a * (T)57.29577951308232")

ALPHA = {"parameters": [(2, 1)], "choice": "ALPHA"}
op("add.Tensor", 2,
   {"F": ["a + b", "FMA@(p0, b, a)"], "I": ["(T)(a + b)", "(T)(a + p0 * b)"],
    "B": ["a | b", "a | (b & (q->i[0] != 0))"]}, wrap=True, halves=True,
   **ALPHA)
op("sub.Tensor", 2,
   {"F": ["a - b", "FMA@(-p0, b, a)"],
    "I": ["(T)(a - b)", "(T)(a - p0 * b)"]}, wrap=True, halves=True, **ALPHA)
op("rsub.Tensor", 2,
   {"F": ["b - a", "FMA@(-p0, a, b)"],
    "I": ["(T)(b - a)", "(T)(b - p0 * a)"]}, wrap=True, **ALPHA)
op("mul.Tensor", 2, {"F": "a * b", "I": "(T)(a * b)", "B": "a & b"},
   wrap=True, halves=True)
op("div.Tensor", 2, {"F": "a / b"}, halves=True)
op("div.Tensor_mode", 2,
   {"f64": ["a / b", "trunc@(a / b)", "floor_divide@(a, b)"],
    "f32": ["a / b", "trunc@(a / b)", "floor_divide@(a, b)",
            "trunc@(round_to_f16(a / b))", "trunc@(round_to_bf16(a / b))"],
    "I": ["divide_i64(a, b, &bad)", "divide_i64(a, b, &bad)",
          "floor_divide_i64(a, b, &bad)"]},
   choice="ROUNDING", cost=2)
op("floor_divide", 2,
   {"F": "floor_divide@(a, b)", "I": "floor_divide_i64(a, b, &bad)"}, cost=2)
op("fmod.Tensor", 2, {"F": "fmod@(a, b)", "I": "modulo_i64(a, b, &bad)"},
   cost=3)
op("remainder.Tensor", 2,
   {"F": "remainder@(a, b)", "I": "floor_modulo_i64(a, b, &bad)"}, cost=3)
op("pow.Tensor_Tensor", 2,
   {"F": ["pow@(a, b)", "a * a", "a * a * a", "sqrt@(a)", "1 / a",
          "1 / (a * a)", "1 / sqrt@(a)"]}, choice="POWER", cost=3, halves=5)
op("pow.Tensor_Tensor", 2, {"I": "(T)power_i64(a, b)"}, cost=3)
# Of two operands, for floating-point dtypes only.
binary = lambda name, expression, cost=0: op(
    name, 2, {"F": expression}, cost=cost)
binary("atan2", "atan2@(a, b)", 4)
binary("hypot", "hypot@(a, b)", 3)
binary("copysign.Tensor", "copysign@(a, b)")
op("nextafter", 2, {"f64": "nextafter_f64(a, b)"}, cost=3)
op("nextafter", 2, {"f32": ["nextafter_f32(a, b)", "nextafter_f16(a, b)",
                            "nextafter_bf16(a, b)"]}, choice="DTYPE", cost=3)
op("heaviside", 2, {"F": "a == 0 ? b : (T)(a > 0)",
                    "I": "a == 0 ? b : (T)(a > 0)", "B": "a | b"})
MAXIMUM = "(a > b || a != a) ? a : b"
MINIMUM = "(a < b || a != a) ? a : b"
op("maximum", 2, {"F": MAXIMUM, "I": "a > b ? a : b", "B": "a | b"},
   halves=True)
op("minimum", 2, {"F": MINIMUM, "I": "a < b ? a : b", "B": "a & b"},
   halves=True)
op("fmax", 2, {"F": "(a > b || b != b) ? a : b", "I": "a > b ? a : b",
               "B": "a | b"})
op("fmin", 2, {"F": "(a < b || b != b) ? a : b", "I": "a < b ? a : b",
               "B": "a & b"})
op("lerp.Scalar", 2, {"F": "lerp@(a, b, p0)"}, parameters=[(2, 0)],
   halves=True)
op("lerp.Tensor", 3, {"F": "lerp@(a, b, c)"})
op("addcmul", 3, {"F": "FMA@(p0 * b, c, a)", "I": "(T)(a + p0 * b * c)"},
   parameters=[(3, 1)], halves=True)
op("addcdiv", 3, {"F": "FMA@(p0, b / c, a)"}, parameters=[(3, 1)])
op("gcd", 2, {"I": "(T)gcd_i64(a, b)"}, cost=4)
op("lcm", 2, {"I": "(T)lcm_i64(a, b)"}, cost=4)

# ------------------------------------------------- bits, logic, comparison --

op("bitwise_not", 1, {"I": "(T)~a", "B": "!a"}, wrap=True)
for name, operator in ("and", "&"), ("or", "|"), ("xor", "^"):
    expression = "(T)(a %s b)" % operator
    op("bitwise_%s.Tensor" % name, 2, {"I": expression, "B": expression},
       wrap=True)
op("bitwise_left_shift.Tensor", 2, {"I": "(T)shift_left_i64(a, b)"})
op("bitwise_right_shift.Tensor", 2, {"I": "(T)shift_right_i64(a, b)"})
for name, operator in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="),
                       ("gt", ">"), ("ge", ">=")):
    compare(name + ".Tensor", operator)
op("logical_not", 1, {"F": "a == 0", "I": "a == 0", "B": "a == 0"},
   output="bool")
for name, operator in ("and", "&"), ("or", "|"), ("xor", "^"):
    expression = "(a != 0) %s (b != 0)" % operator
    op("logical_" + name, 2,
       {"F": expression, "I": expression, "B": expression}, output="bool")
NEVER = "(void)a, 0"
op("isnan", 1, {"F": "a != a", "I": NEVER, "B": NEVER}, output="bool")
op("isinf", 1, {"F": "abs@(a) == INFINITE@", "I": NEVER, "B": NEVER},
   output="bool")
op("isposinf", 1, {"F": "a == INFINITE@", "I": NEVER, "B": NEVER},
   output="bool")
op("isneginf", 1, {"F": "a == -INFINITE@", "I": NEVER, "B": NEVER},
   output="bool")
op("signbit", 1, {"F": "sign_bit@(a)", "I": "a < 0", "B": NEVER},
   output="bool")
op("where.self", 3, {"W": "a ? b : c"}, types=["W", "bool", "W", "W"])
op("masked_fill.Scalar", 2, {"W": "b ? fill : a"}, types=["W", "W", "bool"],
   parameters=[(2, 0)], choice="BITS", setup="const T fill = (T)q->bits;")

# ------------------------------------------------------------------ bounds --

BOUNDS = {"parameters": [(1, -INFINITY), (2, INFINITY)]}
CLAMP = {"F": "clamp@(a, p0, p1)", "I": "a < p0 ? (p0 < p1 ? p0 : p1) : "
                                        "a > p1 ? p1 : a"}
op("clamp", 1, CLAMP, halves=True, **BOUNDS)
op("hardtanh", 1, CLAMP, parameters=[(1, -1), (2, 1)])
op("clamp_min.Tensor", 2, {"F": MAXIMUM, "I": "a > b ? a : b", "B": "a | b"})
op("clamp_max.Tensor", 2, {"F": MINIMUM, "I": "a < b ? a : b", "B": "a & b"})
op("clamp.Tensor", 3,
   {"F": ["minimum@(maximum@(a, b), c)", MAXIMUM, MINIMUM],
    "I": ["a < b ? (b < c ? b : c) : a > c ? c : a", "a > b ? a : b",
          "a < b ? a : b"]}, choice="CLAMP")
op("nan_to_num", 1,
   {"F": "a != a ? p0 : a == INFINITE@ ? high : a == -INFINITE@ ? low : a",
    "I": "a", "B": "a"},
   parameters=[(1, 0), (2, INFINITY), (3, -INFINITY)], choice="FINITE",
   setup="const T high = finite@(p1), low = finite@(p2);")

# ------------------------------------------------- exponentials and friends --

for name in "sin", "cos", "tan":
    unary(name, name + "@(a)", 2, beyond=("MATH_TURNS", name + "f(a)"))
for name, cost in (("exp", 1), ("exp2", 1), ("expm1", 1), ("log", 1),
                   ("log2", 1), ("log10", 1), ("log1p", 1), ("asin", 4), ("acos", 4),
                   ("atan", 4), ("sinh", 2), ("cosh", 2), ("tanh", 1),
                   ("asinh", 4), ("acosh", 4), ("atanh", 4), ("erf", 2),
                   ("erfc", 4), ("sigmoid", 1), ("lgamma", 5)):
    unary(name, name + "@(a)", cost)
unary("logit", "log@(z / (1 - z))".replace(
    "z", "(p0 < 0 ? a : a < p0 ? p0 : a > 1 - p0 ? 1 - p0 : a)"), 1,
    parameters=[(1, -1)])
binary("logaddexp", "logaddexp@(a, b)", 2)
binary("logaddexp2", "logaddexp2@(a, b)", 2)
binary("xlogy.Tensor", "b != b ? b : a == 0 ? 0 : a * log@(b)", 1)
binary("special_xlog1py", "b != b ? b : a == 0 ? 0 : a * log1p@(b)", 1)
unary("sinc", "a == 0 ? 1 : (T)sin((double)a * 3.141592653589793) / "
              "(a * (T)3.141592653589793)", 4)
unary("special_entr", "a > 0 ? -a * log@(a) : a == 0 ? 0 : "
                      "a != a ? a : -INFINITE@", 1)

# Special functions compute in f64: special(…) calls the one that the operator
# is named after.  The CPU numbers them in the order of these lists.
SPECIAL_UNARY = [
    "digamma", "erfinv", "special_erfcx", "special_log_ndtr", "special_ndtri",
    "i0", "special_i0e", "special_i1", "special_i1e",
    "special_modified_bessel_k0", "special_scaled_modified_bessel_k0",
    "special_modified_bessel_k1", "special_scaled_modified_bessel_k1",
    "special_bessel_j0", "special_bessel_j1", "special_bessel_y0",
    "special_bessel_y1", "special_airy_ai", "special_spherical_bessel_j0",
    "angle"]
SPECIAL_BINARY = [
    "polygamma", "special_zeta", "igamma", "igammac",
    "special_chebyshev_polynomial_t", "special_chebyshev_polynomial_u",
    "special_chebyshev_polynomial_v", "special_chebyshev_polynomial_w",
    "special_shifted_chebyshev_polynomial_t",
    "special_shifted_chebyshev_polynomial_u",
    "special_shifted_chebyshev_polynomial_v",
    "special_shifted_chebyshev_polynomial_w",
    "special_hermite_polynomial_h", "special_hermite_polynomial_he",
    "special_laguerre_polynomial_l", "special_legendre_polynomial_p"]

# Those in gamma.h, which GPUs share: gradients of lgamma.
SHARED_SPECIAL = {"digamma": "math_digamma", "polygamma": "math_polygamma",
                  "special_zeta": "math_zeta"}

for name in SPECIAL_UNARY:
    unary(name, "(T)special((double)a)", 6, special=1)
for name in SPECIAL_BINARY[1:]:
    op(name, 2, {"F": "(T)special((double)a, (double)b)"}, cost=6, special=2)
op("polygamma", 1, {"F": "(T)special((double)p0, (double)a)"}, cost=6,
   parameters=[(0, 0)], special=2)

# ------------------------------------------------------------- activations --

op("relu", 1, {"F": "a <= 0 ? 0 : a", "I": "a < 0 ? 0 : a"}, halves=True)
op("gelu", 1, {"F": ["gelu@(a)", "gelu_tanh@(a)"]}, choice="TANH", cost=2)
unary("silu", "a * sigmoid@(a)", 1)
unary("mish", "a * tanh_of_softplus@(a)", 2)
unary("elu", "a <= 0 ? p0 * p1 * expm1@(a * p2) : a * p1", 1,
      parameters=[(1, 1), (2, 1), (3, 1)])
unary("leaky_relu", "a > 0 ? a : a * p0", parameters=[(1, 0.01)], halves=True)
unary("hardsigmoid", "clamp@(a + 3, 0, 6) / 6")
unary("hardswish", "a * clamp@(a + 3, 0, 6) / 6")
unary("hardshrink", "(a >= -p0 && a <= p0) ? 0 : a", parameters=[(1, 0.5)],
      choice="BOUND")
unary("softshrink", "a > p0 ? a - p0 : a < -p0 ? a + p0 : a * 0",
      parameters=[(1, 0.5)], choice="BOUND")
unary("softplus", "a * p0 > p1 ? a : log1p@(exp@(a * p0)) / p0", 2,
      parameters=[(1, 1), (2, 20)])
op("threshold", 1, {"F": "a <= p0 ? p1 : a", "I": "a <= p0 ? p1 : a"},
   parameters=[(1, 0), (2, 0)])

# --------------------------------------------------- gradients; a: of output --

op("threshold_backward", 2, {"F": "b <= p0 ? 0 : a", "I": "b <= p0 ? 0 : a"},
   parameters=[(2, 0)], halves=True)
op("sigmoid_backward", 2, {"F": "a * (1 - b) * b"}, halves=True)
op("tanh_backward", 2, {"F": "a * (1 - b * b)"}, halves=True)
op("gelu_backward", 2,
   {"F": ["a * gelu_slope@(b)", "a * gelu_tanh_slope@(b)"]}, choice="TANH",
   cost=2)
binary("silu_backward", "a * silu_slope@(b)", 1)
binary("mish_backward", "a * mish_slope@(b)", 2)
op("hardtanh_backward", 2, {"F": "(b <= p0 || b >= p1) ? 0 : a"},
   parameters=[(2, -1), (3, 1)])
op("leaky_relu_backward", 2, {"F": "b > 0 ? a : a * p0"},
   parameters=[(2, 0.01)])
op("elu_backward", 2,
   {"F": "b > 0 ? a * p1 : a * p2 * (p3 != 0 ? b + p0 * p1 : "
         "p0 * p1 * exp@(b * p2))"},
   parameters=[(1, 1), (2, 1), (3, 1), (4, 0)], cost=1)
op("softplus_backward", 2,
   {"F": "b * p0 > p1 ? a : a * sigmoid@(b * p0)"},
   parameters=[(2, 1), (3, 20)], cost=1)
binary("hardsigmoid_backward", "(b > -3 && b < 3) ? a / 6 : 0")
binary("hardswish_backward",
       "b <= -3 ? 0 : b >= 3 ? a : a * (b / 3 + (T)0.5)")
op("hardshrink_backward", 2, {"F": "(b >= -p0 && b <= p0) ? 0 : a"},
   parameters=[(2, 0.5)], choice="BOUND")
op("softshrink_backward", 2, {"F": "(b >= -p0 && b <= p0) ? 0 : a"},
   parameters=[(2, 0.5)], choice="BOUND")
op("logit_backward", 2,
   {"F": "(b < low || b > 1 - low) ? outside : a / abs@(b * (1 - b))"},
   parameters=[(2, -1)],
   setup="const T low = p0 < 0 ? 0 : p0, outside = p0 < 0 ? NOT@ : 0;")
