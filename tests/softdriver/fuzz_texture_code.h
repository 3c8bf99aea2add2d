#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>

// Random kernels with instructions on textures and surfaces. Most of these instructions are
// correct, and coordinates, levels and gradients are often special numbers.

namespace fuzz {

class TextureCode {
  public:
    using Below = std::function<uint64_t(uint64_t)>; // returns a random number below its argument

    // The geometries of instructions. Surfaces have the first five.
    static constexpr const char *geometries[] = {"1d", "2d", "3d", "a1d", "a2d", "cube", "acube"};
    static constexpr size_t texture_geometries = 7, surface_geometries = 5;

    explicit TextureCode(Below below) : below_(std::move(below)) {}

    // Returns the text of the kernel `look` with this body. %rd1 contains the first parameter, a
    // handle of a texture. %rd2 contains the second parameter, a handle of a surface.
    static std::string kernel(const std::string &body) {
        return ".version 8.1\n.target sm_90\n.address_size 64\n"
               ".visible .entry look(.param .u64 t, .param .u64 s, .param .f32 x, .param .u32 i)\n"
               "{\n.reg .pred %p<3>; .reg .b16 %h<9>; .reg .b32 %r<16>; .reg .b64 %rd<9>;\n"
               ".reg .f32 %f<16>;\nld.param.u64 %rd1, [t]; ld.param.u64 %rd2, [s];\n"
               "ld.param.f32 %f1, [x]; ld.param.u32 %r1, [i]; mov.u32 %r2, %tid.x;\n"
               "shl.b32 %r3, %r2, 4; mov.u64 %rd3, 0x8000000000000001;\n"
               "setp.lt.u32 %p1, %r2, 3; cvt.rn.f32.u32 %f2, %r2;\n"
               "mul.f32 %f3, %f2, 0f3E000000; neg.f32 %f4, %f3;\n" +
               body + "ret;\n}\n";
    }

    std::string texture_instruction(size_t geometry) {
        switch (below_(10)) {
        case 0:
            if (geometry == 1)
                return guard() + gather();
            [[fallthrough]];
        case 1:
            return guard() + query("txq", "%rd1");
        default:
            return guard() + read(geometry);
        }
    }

    std::string surface_instruction(size_t geometry) {
        switch (below_(8)) {
        case 0:
        case 1:
        case 2:
            return guard() + load(geometry);
        case 3:
        case 4:
            return guard() + store(geometry);
        case 5:
            return guard() + formatted_store(geometry);
        case 6:
            return guard() + reduction(geometry);
        default:
            return guard() + query("suq", "%rd2");
        }
    }

    // Whether coordinates are integers, for textures of linear memory.
    bool integers = false;

  private:
    std::string any(std::initializer_list<const char *> words) {
        return words.begin()[below_(words.size())];
    }
    bool chance(unsigned percent) { return below_(100) < percent; }
    std::string guard() { return chance(15) ? any({"@%p1 ", "@!%p1 "}) : ""; }

    std::string number() {
        return any({"%f1", "%f2", "%f3", "%f4", "0f00000000", "0f3F000000", "0fBF000000",
                    "0f3F800000", "0f7F800000", "0fFF800000", "0f7FC00000", "0f00000001",
                    "0f7149F2CA", "0fC47A0000"});
    }
    std::string integer() {
        return any({"%r1", "%r2", "%r2", "0", "1", "2", "-1", "7", "0x7fffffff", "-2147483648"});
    }
    // A byte offset. With 98 % probability, all accesses at this offset are aligned.
    std::string place() {
        return chance(2) ? integer() : any({"%r3", "%r3", "0", "16", "64", "-16", "1073741824"});
    }

    static bool is_layered(size_t geometry) {
        return geometry == 3 || geometry == 4 || geometry == 6;
    }
    static size_t dimensions(size_t geometry) {
        return geometry == 0 || geometry == 3 ? 1 : geometry == 1 || geometry == 4 ? 2 : 3;
    }

    // A vector of coordinates. PTX has vectors of two and of four.
    std::string vector(size_t geometry, const std::function<std::string(size_t)> &coordinate,
                       bool may_have_layer = true) {
        bool layer = may_have_layer && is_layered(geometry);
        size_t count = dimensions(geometry);
        std::string text = layer ? integer() + ", " : "";
        for (size_t i = 0; i < count; i++)
            text += (i ? ", " : "") + coordinate(i);
        if (count + layer == 3)
            text += ", " + coordinate(count - 1);
        return "{" + text + "}";
    }

    std::string floats() {
        return any(
            {"{%f11, %f12, %f13, %f14}", "{%r11, %r12, %r13, %r14}", "{%f1, %f12, %f13, %f14}"});
    }

    std::string read(size_t geometry) {
        bool whole = integers && geometry < 5 ? !chance(5) : chance(1) && geometry < 5;
        std::string form = any({"", "", ".base", ".level", ".level", ".grad", ".grad"});
        auto real = [&](size_t) { return number(); };
        auto coordinate = [&](size_t) { return whole ? integer() : number(); };
        if (whole && form == ".grad")
            form = "";
        std::string text = "tex" + form + "." + geometries[geometry] + ".v4." +
                           any({"f32", "f32", "u32", "s32"}) + (whole ? ".s32 " : ".f32 ") +
                           floats() + ", [%rd1, " + vector(geometry, coordinate) + "]";
        if (form == ".level")
            text += ", " + (whole ? integer() : number());
        if (form == ".grad")
            text += ", " + vector(geometry, real, false) + ", " + vector(geometry, real, false);
        return text + ";\n";
    }

    std::string gather() {
        auto real = [&](size_t) { return number(); };
        return "tld4." + any({"r", "g", "b", "a"}) + ".2d.v4." + any({"f32", "u32"}) + ".f32 " +
               floats() + ", [%rd1, " + vector(1, real) + "];\n";
    }

    std::string query(const std::string &opcode, const std::string &handle) {
        bool level = opcode == "txq" && chance(50);
        return opcode + (level ? ".level" : "") + any({".width", ".height", ".depth"}) +
               ".b32 %r11, [" + handle + "]" + (level ? ", " + integer() : "") + ";\n";
    }

    std::string beyond() { return chance(3) ? ".trap" : any({".zero", ".clamp"}); }

    std::string spot(size_t geometry, bool formatted) {
        return "[%rd2, " +
               vector(geometry, [&](size_t i) { return i || formatted ? integer() : place(); }) +
               "]";
    }

    // The items of suld.b and sust.b, with the modifiers that belong to them.
    std::string items(std::string &modifiers) {
        size_t width = below_(4), most = width == 3 ? 2 : 3;
        std::string name = width == 0 ? "b8" : width == 1 ? "b16" : width == 2 ? "b32" : "b64";
        const char *letter = width < 2 ? "%h" : width == 2 ? "%r1" : "%rd";
        size_t count = size_t{1} << below_(most);
        modifiers = (count == 1 ? "" : ".v" + std::to_string(count)) +
                    (chance(20) ? any({".ca", ".cg", ".cs"}) : "") + "." + name;
        std::string text;
        for (size_t i = 0; i < count; i++)
            text +=
                (i ? ", " : "") + std::string(letter) + std::to_string(i + (width == 3 ? 4 : 1));
        return count == 1 ? text : "{" + text + "}";
    }

    std::string load(size_t geometry) {
        std::string modifiers, to = items(modifiers);
        return "suld.b." + std::string(geometries[geometry]) + modifiers + beyond() + " " + to +
               ", " + spot(geometry, false) + ";\n";
    }

    std::string store(size_t geometry) {
        std::string modifiers, from = items(modifiers);
        return "sust.b." + std::string(geometries[geometry]) + modifiers + beyond() + " " +
               spot(geometry, false) + ", " + from + ";\n";
    }

    std::string formatted_store(size_t geometry) {
        geometry %= 3; // sust.p has no geometry with layers
        std::string vector = any({"", ".v2", ".v4"});
        std::string from = vector.empty()    ? "%r2"
                           : vector == ".v2" ? "{%r1, %r3}"
                                             : "{%f1, %f2, %f3, %f4}";
        return "sust.p." + std::string(geometries[geometry]) + vector + ".b32" + beyond() + " " +
               spot(geometry, true) + ", " + from + ";\n";
    }

    std::string reduction(size_t geometry) {
        geometry %= 3;
        bool formatted = chance(25);
        std::string form =
            formatted
                ? any({"p.add.#.b32", "p.min.#.b32", "p.or.#.b32", "p.max.#.b64"})
                : any({"b.add.#.u32", "b.add.#.s32", "b.add.#.u64", "b.min.#.s32", "b.max.#.u32",
                       "b.min.#.u64", "b.max.#.s64", "b.and.#.b32", "b.or.#.b32"});
        form.replace(form.find('#'), 1, geometries[geometry]);
        bool wide = form.find("64") != std::string::npos;
        return "sured." + form + beyond() + " " + spot(geometry, formatted) + ", " +
               (wide ? "%rd3" : "%r2") + ";\n";
    }

    Below below_;
};

} // namespace fuzz
