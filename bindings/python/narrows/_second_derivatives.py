# SPDX-License-Identifier: Apache-2.0
"""Made by scripts/functions.py from core/ops/elementwise_functions.toml: second derivatives."""

from narrows import _functions

_F = _functions.public

# name of the op -> (how many operands they take, {(i, j): the second derivative by operands i and j})
# fmt: off
SECOND = {
    "square": (1, {(0, 0): lambda a: 2.0}),
    "sqrt": (1, {(0, 0): lambda a: -(1 / (2 * _F("sqrt")(a)) * (2 * (1 / (2 * _F("sqrt")(a))))) / (2 * _F("sqrt")(a))}),
    "rsqrt": (1, {(0, 0): lambda a: (-(-_F("rsqrt")(a) / (2 * a)) - -_F("rsqrt")(a) / (2 * a) * 2) / (2 * a)}),
    "exp": (1, {(0, 0): lambda a: _F("exp")(a)}),
    "exp2": (1, {(0, 0): lambda a: _F("exp2")(a) * 0.6931471805599453 * 0.6931471805599453}),
    "expm1": (1, {(0, 0): lambda a: _F("exp")(a)}),
    "log": (1, {(0, 0): lambda a: -(1 / a) / a}),
    "log2": (1, {(0, 0): lambda a: -(1 / (a * 0.6931471805599453) * 0.6931471805599453) / (a * 0.6931471805599453)}),
    "log10": (1, {(0, 0): lambda a: -(1 / (a * 2.302585092994046) * 2.302585092994046) / (a * 2.302585092994046)}),
    "log1p": (1, {(0, 0): lambda a: -(1 / (1 + a)) / (1 + a)}),
    "sin": (1, {(0, 0): lambda a: -_F("sin")(a)}),
    "cos": (1, {(0, 0): lambda a: -_F("cos")(a)}),
    "tan": (1, {(0, 0): lambda a: (1 + _F("tan")(a) * _F("tan")(a)) * _F("tan")(a) + _F("tan")(a) * (1 + _F("tan")(a) * _F("tan")(a))}),
    "sinh": (1, {(0, 0): lambda a: _F("sinh")(a)}),
    "cosh": (1, {(0, 0): lambda a: _F("cosh")(a)}),
    "sigmoid": (1, {(0, 0): lambda a: _F("sigmoid")(a) * _F("sigmoid")(-a) * _F("sigmoid")(-a) + _F("sigmoid")(a) * (-_F("sigmoid")(-a) * _F("sigmoid")(a))}),
    "softplus": (1, {(0, 0): lambda a: _F("sigmoid")(a) * _F("sigmoid")(-a)}),
    "reciprocal": (1, {(0, 0): lambda a: -(-(_F("reciprocal")(a) * _F("reciprocal")(a)) * _F("reciprocal")(a) + _F("reciprocal")(a) * -(_F("reciprocal")(a) * _F("reciprocal")(a)))}),
    "mul": (2, {(0, 1): lambda a, b: 1.0}),
    "div": (2, {(0, 1): lambda a, b: -(1 / b) / b, (1, 1): lambda a, b: (-(-_F("divide")(a, b) / b) - -_F("divide")(a, b) / b) / b}),
    "fma": (2, {(0, 1): lambda a, b: 1.0}),
}
# fmt: on
