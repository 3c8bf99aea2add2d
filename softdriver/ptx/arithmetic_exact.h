#pragma once

#include "ptx/arithmetic_format.h"

// This header has arithmetic of doubles that does not round to nearest. The functions are slow:
// they compute in integers and round once, because compilers assume that the processor's rounding
// mode never changes.

namespace soft::ptx::floating {

double exact_sum(double a, double b, Rounding rounding);
double exact_product(double a, double b, Rounding rounding);
double exact_fma(double a, double b, double c, Rounding rounding);
double exact_quotient(double a, double b, Rounding rounding);
double exact_root(double a, Rounding rounding);

} // namespace soft::ptx::floating
