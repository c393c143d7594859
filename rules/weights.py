"""The one table of pointwise weights: FLOP per element of the result, by the expression counted.

One evaluation of an elementary function is 1, whatever the hardware needs for it. A
composite function is the number of elementary evaluations in its definition, written
beside it. Selecting, casting, copying and indexing are 0. Every integer, logical and
bitwise operation counts like a floating one.
"""

from __future__ import annotations

ELEMENTARY = (
    # arithmetic
    "add", "sub", "rsub", "mul", "div", "neg", "negative", "reciprocal", "abs", "absolute", "sign", "sgn", "square",
    "pow", "float_power", "sqrt", "rsqrt", "fmod", "remainder", "maximum", "minimum", "fmax", "fmin", "clamp_min",
    "clamp_max", "copysign", "nextafter", "heaviside", "relu", "gcd", "lcm", "ceil", "floor", "round", "trunc", "frac",
    "deg2rad", "rad2deg",
    # comparison, logic, bits
    "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isposinf", "isneginf", "signbit", "logical_and",
    "logical_or", "logical_xor", "logical_not", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not",
    "bitwise_left_shift", "bitwise_right_shift", "__lshift__", "__rshift__", "__and__", "__or__", "__xor__",
    "__ilshift__", "__irshift__",
    # exponential, trigonometric, special
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "atan2",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "digamma", "polygamma",
    "mvlgamma", "i0", "igamma", "igammac", "angle", "_conj_physical", "conj_physical", "special_airy_ai",
    "special_bessel_j0", "special_bessel_j1", "special_bessel_y0", "special_bessel_y1",
    "special_chebyshev_polynomial_t", "special_chebyshev_polynomial_u", "special_chebyshev_polynomial_v",
    "special_chebyshev_polynomial_w", "special_entr", "special_erfcx", "special_hermite_polynomial_h",
    "special_hermite_polynomial_he", "special_i0e", "special_i1", "special_i1e", "special_laguerre_polynomial_l",
    "special_legendre_polynomial_p", "special_log_ndtr", "special_modified_bessel_i0", "special_modified_bessel_i1",
    "special_modified_bessel_k0", "special_modified_bessel_k1", "special_ndtri",
    "special_scaled_modified_bessel_k0", "special_scaled_modified_bessel_k1",
    "special_shifted_chebyshev_polynomial_t", "special_shifted_chebyshev_polynomial_u",
    "special_shifted_chebyshev_polynomial_v", "special_shifted_chebyshev_polynomial_w",
    "special_spherical_bessel_j0", "special_zeta",
)  # fmt: skip

COMPOSITE = {
    "floor_divide": 2,  # floor(a / b)
    "ldexp": 2,  # x * 2**n
    "hypot": 4,  # sqrt(a*a + b*b)
    "sinc": 4,  # sin(pi*x) / (pi*x), one multiply shared, one comparison with 0
    "xlogy": 2,  # x * log(y)
    "special_xlog1py": 2,  # x * log1p(y)
    "logaddexp": 6,  # max(a, b) + log1p(exp(-abs(a - b)))
    "logaddexp2": 6,  # the same in base 2
    "nan_to_num": 3,  # three comparisons
    "lerp": 3,  # a + w*(b - a)
    "logit": 3,  # log(x / (1 - x))
    "isfinite": 1,
    "frexp": 2,  # mantissa and exponent
    "polar": 4,  # r*cos(t), r*sin(t)
    "_add_relu": 2,  # max(a + b, 0)
    # activations
    "threshold": 1,  # one comparison
    "sigmoid": 4,  # 1 / (1 + exp(-x))
    "silu": 5,  # x * sigmoid(x)
    "gelu": 5,  # x * 0.5 * (1 + erf(x / sqrt(2)))
    "gelu_tanh": 9,  # 0.5*x * (1 + tanh(c*(x + d*x*x*x)))
    "mish": 4,  # x * tanh(log1p(exp(x)))
    "softplus": 5,  # log1p(exp(b*x)) / b where b*x is below the threshold
    "log_sigmoid_forward": 6,  # min(0, x) - log1p(exp(-abs(x)))
    "hardtanh": 2,  # min(max(x, lo), hi)
    "hardsigmoid": 4,  # min(max(x + 3, 0), 6) / 6
    "hardswish": 5,  # x * hardsigmoid(x)
    "hardshrink": 2,  # two comparisons
    "softshrink": 3,  # two comparisons, x - l
    "leaky_relu": 2,  # one comparison, s*x
    "_prelu_kernel": 2,  # one comparison, w*x
    "rrelu_with_noise": 2,  # one comparison, noise*x
    "rrelu_with_noise_functional": 2,
    "elu": 3,  # one comparison, a * expm1(x)
    "celu": 4,  # one comparison, a * expm1(x / a)
    "selu": 4,  # one comparison, s * a * expm1(x)
    "glu": 5,  # a * sigmoid(b), per element of the result
    "softmax": 5,  # max, subtract, exp, sum, divide
    "dropout": 2,  # x * mask * scale; drawing the mask is not counted
    # derivatives, g the gradient of the result
    "threshold_backward": 1,  # one comparison
    "sigmoid_backward": 3,  # g * (1 - y) * y
    "tanh_backward": 3,  # g * (1 - y*y)
    "silu_backward": 9,  # s = sigmoid(x); g * s * (1 + x*(1 - s))
    "gelu_backward": 11,  # cdf = 0.5*(1 + erf(x*c)) 4; pdf = d*exp(-0.5*x*x) 4; g * (cdf + x*pdf) 3
    "gelu_tanh_backward": 18,  # tanh of the cubic 6; 0.5*x, 1+t, 0.5*(1+t), 1-t*t 5; c*(1+3*d*x*x) 3; the product 4
    "mish_backward": 13,  # t = tanh(log1p(exp(x))) 3; s = sigmoid(x) 4; g * (t + x*s*(1 - t*t)) 6
    "softplus_backward": 6,  # z = exp(b*x); g*z / (z + 1); one comparison
    "log_sigmoid_backward": 6,  # z saved; g * (m - s*z/(1 + z)); one comparison
    "hardtanh_backward": 2,  # two comparisons
    "hardsigmoid_backward": 3,  # two comparisons, g / 6
    "hardswish_backward": 5,  # two comparisons, g * (x/3 + 0.5)
    "hardshrink_backward": 2,  # two comparisons
    "softshrink_backward": 2,  # two comparisons
    "leaky_relu_backward": 2,  # one comparison, s*g
    "_prelu_kernel_backward": 3,  # one comparison, w*g, x*g
    "rrelu_with_noise_backward": 1,  # noise * g
    "elu_backward": 4,  # one comparison, g * a * exp(x)
    "glu_backward": 4,  # s = sigmoid(b) 4; g*s 1; g*a*s*(1 - s) 3: 8 for two elements of the result
    "glu_jvp": 9,  # s = sigmoid(b) 4; da*s + a*db*s*(1 - s) 5
    "logit_backward": 3,  # g / (x * (1 - x))
}

WEIGHTS: dict[str, int] = dict.fromkeys(ELEMENTARY, 1) | COMPOSITE

COMPLEX = {
    "mul": 6,  # four multiplies, two adds
    "div": 11,  # six multiplies, three adds, two divisions
    "polar": 4,  # one complex result needs one cos, one sin, two multiplies
    "_conj_physical": 1,  # one negation
    "conj_physical": 1,
}
