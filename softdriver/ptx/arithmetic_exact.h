#pragma once

#include "ptx/arithmetic_format.h"

// Doubles rounded otherwise than to nearest: computed in integers and rounded once, because the
// processor's rounding mode is state that compilers take to be constant. These are slow.

namespace soft::ptx::floating {

double exact_sum(double a, double b, Rounding rounding);
double exact_product(double a, double b, Rounding rounding);
double exact_fma(double a, double b, double c, Rounding rounding);
double exact_quotient(double a, double b, Rounding rounding);
double exact_root(double a, Rounding rounding);

} // namespace soft::ptx::floating
