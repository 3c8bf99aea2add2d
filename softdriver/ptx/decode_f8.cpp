#include "ptx/arithmetic_f8.h"

#include "ptx/decode_arithmetic.h"

// This file decodes the conversions (cvt) from and to pairs of 8-bit floating-point numbers.

namespace soft::ptx {

namespace {

using namespace floating;

template <class F, bool with_relu> uint8_t shorten(double a) {
    return to_f8<F>(with_relu ? floating::relu(a) : a);
}
template <class F, bool with_relu> uint16_t f8_of_floats(float a, float b) {
    return uint16_t(shorten<F, with_relu>(double(a)) << 8 | shorten<F, with_relu>(double(b)));
}
template <class F, bool with_relu> uint16_t f8_of_halves(uint32_t a) {
    auto half = [](uint32_t bits) { return double(widen(Half{uint16_t(bits)})); };
    return uint16_t(shorten<F, with_relu>(half(a >> 16)) << 8 | shorten<F, with_relu>(half(a)));
}
template <class F, bool with_relu> uint32_t halves_of_f8(uint16_t a) {
    Half high = half_of<F>(uint8_t(a >> 8)), low = half_of<F>(uint8_t(a));
    if (with_relu)
        high = floating::relu(high), low = floating::relu(low);
    return uint32_t(high.bits) << 16 | low.bits;
}

template <class F> void decode_into(Decoder &decoder, bool with_relu) {
    Type from = decoder.take_type();
    if (!decoder.take("satfinite"))
        decoder.refuse(".satfinite is missing");
    bool floats = from == Type::F32;
    decoder.expect_operands(floats ? 3 : 2);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), Type::B16);
    for (size_t i = 1; i < decoder.operands(); i++)
        decoder.step.rows[i] = decoder.source(decoder.operand(i), from);
    if (floats)
        return decoder.emit(with_relu ? lanes<f8_of_floats<F, true>>
                                      : lanes<f8_of_floats<F, false>>);
    decoder.emit(from != Type::F16x2 ? nullptr
                 : with_relu         ? lanes<f8_of_halves<F, true>>
                                     : lanes<f8_of_halves<F, false>>);
}

template <class F> void decode_from(Decoder &decoder, bool with_relu) {
    decoder.expect_operands(2);
    decoder.step.rows[0] = decoder.destination(decoder.operand(0), Type::B32);
    decoder.step.rows[1] = decoder.source(decoder.operand(1), Type::B16);
    decoder.emit(with_relu ? lanes<halves_of_f8<F, true>> : lanes<halves_of_f8<F, false>>);
}

} // namespace

void decode_f8(Decoder &decoder) {
    if (!decoder.take("rn"))
        decoder.refuse(".rn is missing");
    bool with_relu = decoder.take("relu");
    // The first type is that of the result.
    int result = decoder.take_first({"e4m3x2", "e5m2x2", "f16x2"});
    if (result == 0)
        return decode_into<E4M3>(decoder, with_relu);
    if (result == 1)
        return decode_into<E5M2>(decoder, with_relu);
    if (decoder.take("e4m3x2"))
        return decode_from<E4M3>(decoder, with_relu);
    if (!decoder.take("e5m2x2"))
        decoder.refuse_types();
    decode_from<E5M2>(decoder, with_relu);
}

} // namespace soft::ptx
