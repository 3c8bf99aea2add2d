#pragma once

#include "ptx/arithmetic_format.h"

// Arithmetic of doubles with other roundings than to nearest. It is computed in integers and
// rounded once, because compilers assume that the processor's rounding mode never changes. It is
// slow.

namespace soft::ptx::floating {

double exact_sum(double a, double b, Rounding rounding);
double exact_product(double a, double b, Rounding rounding);
double exact_fma(double a, double b, double c, Rounding rounding);
double exact_quotient(double a, double b, Rounding rounding);
double exact_root(double a, Rounding rounding);

} // namespace soft::ptx::floating
