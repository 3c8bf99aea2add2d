#include "ptx/arithmetic_approximate.h"

#include "ptx/decode_arithmetic.h"

// This file decodes the instructions of approximate floating-point arithmetic.

namespace soft::ptx {

namespace {

using namespace floating;

// Decodes an f32 instruction that may have .ftz.
void decode_plain(Decoder &decoder, Handler plain, Handler flushed, size_t sources = 1) {
    bool ftz = decoder.take("ftz");
    Type type = decoder.take_type();
    decode_same(decoder, type, sources, type == Type::F32 ? (ftz ? flushed : plain) : nullptr);
}

void need_approximate(Decoder &decoder) {
    if (!decoder.take("approx"))
        decoder.refuse(".approx is missing");
}

void decode_sin(Decoder &decoder) {
    need_approximate(decoder);
    decode_plain(decoder, quick_lanes<sin_approx<false>, sin_near_0<false>, far_from_0>,
                 quick_lanes<sin_approx<true>, sin_near_0<true>, far_from_0>);
}
void decode_cos(Decoder &decoder) {
    need_approximate(decoder);
    decode_plain(decoder, quick_lanes<cos_approx<false>, cos_near_0<false>, far_from_0>,
                 quick_lanes<cos_approx<true>, cos_near_0<true>, far_from_0>);
}
void decode_lg2(Decoder &decoder) {
    need_approximate(decoder);
    decode_plain(decoder, lanes<lg2_approx<false>>, lanes<lg2_approx<true>>);
}

template <class T, T (*operation)(T)> uint32_t both(uint32_t a) {
    uint32_t low = to_bits(operation(T{uint16_t(a)}));
    return low | uint32_t(to_bits(operation(T{uint16_t(a >> 16)}))) << 16;
}

void decode_ex2(Decoder &decoder) {
    need_approximate(decoder);
    bool ftz = decoder.take("ftz");
    Type type = decoder.take_type();
    Handler handler = nullptr;
    if (type == Type::F32)
        handler = ftz ? lanes<ex2_approx<float, true>> : lanes<ex2_approx<float, false>>;
    else if (type == Type::F16 && !ftz)
        handler = lanes<ex2_approx<Half>>;
    else if (type == Type::F16x2 && !ftz)
        handler = lanes<both<Half, ex2_approx<Half>>>;
    else if (type == Type::BF16 && ftz)
        handler = lanes<ex2_approx<Bfloat, true>>;
    else if (type == Type::BF16x2 && ftz)
        handler = lanes<both<Bfloat, ex2_approx<Bfloat, true>>>;
    decode_same(decoder, type, 1, handler);
}

void decode_tanh(Decoder &decoder) {
    need_approximate(decoder);
    Type type = decoder.take_type();
    decode_same(decoder, type, 1,
                type == Type::F32      ? lanes<tanh_approx<float>>
                : type == Type::F16    ? lanes<tanh_approx<Half>>
                : type == Type::F16x2  ? lanes<both<Half, tanh_approx<Half>>>
                : type == Type::BF16   ? lanes<tanh_approx<Bfloat>>
                : type == Type::BF16x2 ? lanes<both<Bfloat, tanh_approx<Bfloat>>>
                                       : nullptr);
}

double reciprocal_root(double a) { return rsqrt_approx(a); }

void decode_rcp(Decoder &decoder) {
    bool approximate = decoder.take("approx");
    Type type = decoder.take_type();
    if (!approximate || type == Type::F32)
        return decode_rounded_rcp(decoder, type);
    bool flushed = decoder.take("ftz");
    decode_same(decoder, type, 1, type == Type::F64 && flushed ? lanes<rcp_approx_ftz> : nullptr);
}
void decode_sqrt(Decoder &decoder) {
    bool approximate = decoder.take("approx");
    Type type = decoder.take_type();
    if (approximate && type != Type::F32)
        decoder.refuse_types();
    decode_rounded_sqrt(decoder, type);
}
void decode_rsqrt(Decoder &decoder) {
    need_approximate(decoder);
    bool ftz = decoder.take("ftz");
    Type type = decoder.take_type();
    decode_same(decoder, type, 1,
                type == Type::F32   ? (ftz ? lanes<rsqrt_approx<true>> : lanes<rsqrt_approx<false>>)
                : type == Type::F64 ? (ftz ? lanes<rsqrt_approx_ftz> : lanes<reciprocal_root>)
                                    : nullptr);
}

} // namespace

void decode_float_div(Decoder &decoder, Type type, int mode) {
    if (mode >= 0 && type != Type::F32)
        decoder.refuse_types();
    if (mode <= 0)
        return decode_rounded_div(decoder, type);
    bool ftz = decoder.take("ftz");
    decode_same(decoder, type, 2, ftz ? lanes<div_approx<true>> : lanes<div_approx<false>>);
}

void add_approximate(Opcodes &opcodes) {
    opcodes["sin"] = decode_sin;
    opcodes["cos"] = decode_cos;
    opcodes["lg2"] = decode_lg2;
    opcodes["ex2"] = decode_ex2;
    opcodes["tanh"] = decode_tanh;
    opcodes["rcp"] = decode_rcp;
    opcodes["sqrt"] = decode_sqrt;
    opcodes["rsqrt"] = decode_rsqrt;
}

} // namespace soft::ptx
