#include "ptx/parsing.h"

#include <algorithm>

namespace soft::ptx {

namespace {

constexpr uint64_t largest = uint64_t{1} << 40; // limit of a variable's size, in bytes
constexpr uint64_t most_aligned = 1024;

struct SpaceName {
    const char *name;
    Space space;
};
constexpr SpaceName spaces[] = {{"global", Space::Global},
                                {"const", Space::Const},
                                {"shared", Space::Shared},
                                {"local", Space::Local},
                                {"param", Space::Param}};

struct TypeName {
    const char *name;
    Type type;
};
constexpr TypeName types[] = {
    {"pred", Type::Pred}, {"b8", Type::B8},         {"b16", Type::B16}, {"b32", Type::B32},
    {"b64", Type::B64},   {"b128", Type::B128},     {"u8", Type::U8},   {"u16", Type::U16},
    {"u32", Type::U32},   {"u64", Type::U64},       {"s8", Type::S8},   {"s16", Type::S16},
    {"s32", Type::S32},   {"s64", Type::S64},       {"f16", Type::F16}, {"f16x2", Type::F16x2},
    {"bf16", Type::BF16}, {"bf16x2", Type::BF16x2}, {"f32", Type::F32}, {"f64", Type::F64},
};

void read_alignment(Reader &reader, Variable &variable) {
    uint64_t alignment = read_integer(reader);
    if (!alignment || alignment > most_aligned || (alignment & (alignment - 1)))
        reader.fail("an alignment is a power of two up to " + std::to_string(most_aligned));
    variable.alignment = alignment;
}

// Reads an opaque type, if there is one. Its variables have the size of a handle.
bool read_opaque_type(Reader &reader, Variable &variable) {
    using Reference = Variable::Reference;
    if (reader.at_dot("samplerref"))
        reader.fail("samplers that are apart from their texture are not supported");
    variable.reference = reader.accept_dot("texref")    ? Reference::Texture
                         : reader.accept_dot("surfref") ? Reference::Surface
                                                        : Reference::None;
    if (variable.reference == Reference::None)
        return false;
    if (variable.space != Space::Global)
        reader.fail("a reference that is not in .global is not supported by the software driver");
    variable.type = Type::U64;
    return true;
}

// Reads the alignment, the attributes, the vector width and the type of a variable.
void read_qualifiers(Reader &reader, Variable &variable) {
    size_t alignment = 0;
    for (;;) {
        if (reader.accept_dot("align")) {
            read_alignment(reader, variable);
            alignment = variable.alignment;
        } else if (reader.accept_dot("attribute")) {
            variable.managed |= read_attributes(reader);
        } else {
            break;
        }
    }
    size_t width = reader.accept_dot("v2") ? 2 : reader.accept_dot("v4") ? 4 : 1;
    if (!read_opaque_type(reader, variable))
        variable.type = read_type(reader);
    if (!size_of(variable.type))
        reader.fail("a variable in memory cannot be a predicate");
    variable.count = width;
    variable.alignment = alignment ? alignment : width * size_of(variable.type);
}

// Reads the dimensions of an array. The dimension `[]` is 0. If the items are vectors, the width of
// the vectors becomes an additional last dimension.
std::vector<size_t> read_dimensions(Reader &reader, Variable &variable) {
    std::vector<size_t> dimensions;
    size_t width = variable.count;
    uint64_t most = largest / size_of(variable.type);
    variable.is_array = reader.at("[");
    while (reader.accept("[")) {
        uint64_t size = 0;
        if (!reader.at("]")) {
            size = read_integer(reader);
            if (!size || size > most || variable.count * size > most)
                reader.fail("the size of array " + quoted(variable.name) + " is zero or too large");
        } else if (!dimensions.empty()) {
            reader.syntax_error();
        }
        reader.expect("]");
        dimensions.push_back(size);
        if (size) // the size of `[]` is set later, from the number of initial values
            variable.count *= size;
    }
    if (!dimensions.empty() && !dimensions[0])
        variable.count = 0;
    if (width > 1)
        dimensions.push_back(width);
    return dimensions;
}

void read_name(Reader &reader, Variable &variable) {
    variable.line = reader.now().line;
    variable.name = reader.word();
}

// Returns the type as which a parameter in a register is passed: registers have at least 16 bits.
Type held_in_register(Type type) {
    return type == Type::B8 ? Type::B16 : size_of(type) == 1 ? Type::U16 : type;
}

// Merges a declaration (.extern) of a variable with its definition. Returns false if they
// contradict each other.
bool merged(Parsing &parsing, const Variable &variable) {
    auto &symbols = parsing.names.module().symbols;
    auto found = symbols.find(variable.name);
    if (found == symbols.end() || found->second.kind != Symbol::Kind::Variable)
        return false;
    Variable &known = parsing.tree.variables[size_t(found->second.index)];
    bool one_declares = known.external || (variable.external && known.visible);
    bool other_is_visible = variable.visible || variable.external;
    if (!one_declares || !other_is_visible || known.space != variable.space ||
        known.type != variable.type)
        return false;
    if (known.external)
        known = variable;
    return true;
}

void define(Parsing &parsing, std::string_view name, Variable variable, Function *function) {
    bool of_module = !function || variable.space == Space::Global || variable.space == Space::Const;
    auto &variables = of_module ? parsing.tree.variables : function->variables;
    Symbol symbol;
    symbol.kind = Symbol::Kind::Variable;
    symbol.scope = of_module ? Operand::Scope::Module : Operand::Scope::Function;
    symbol.index = int(variables.size());
    if (parsing.names.define(name, symbol))
        variables.push_back(std::move(variable));
    else if (function || !merged(parsing, variable))
        parsing.reader.report(variable.line, "duplicate definition of " + quoted(name));
}

void read_variable(Parsing &parsing, Variable variable, Function *function) {
    Reader &reader = parsing.reader;
    std::string_view name = reader.now().text;
    read_name(reader, variable);
    bool refers = variable.reference != Variable::Reference::None;
    if (refers && (reader.at("[") || reader.at("=")))
        reader.fail("arrays and initial values of references are not supported by the software "
                    "driver");
    std::vector<size_t> dimensions = read_dimensions(reader, variable);
    bool may_have_initial = variable.space == Space::Global || variable.space == Space::Const;
    if (reader.at("=")) {
        if (!may_have_initial || variable.external)
            reader.fail("variable " + quoted(name) + " cannot have an initial value");
        reader.take();
        read_initial(parsing, variable, dimensions);
    }
    if (!variable.count && !variable.external)
        reader.fail("array " + quoted(name) + " has no size");
    define(parsing, name, std::move(variable), function);
}

} // namespace

// Reads the list after .attribute, such as (.managed, .unified(1, 2)).
bool read_attributes(Reader &reader) {
    bool managed = false;
    reader.expect("(");
    do {
        std::string_view name = reader.dot();
        managed |= name == "managed";
        if (name == "unified") {
            reader.expect("(");
            read_integer(reader);
            reader.expect(",");
            read_integer(reader);
            reader.expect(")");
        } else if (name != "managed") {
            reader.fail("unknown attribute " + quoted(name));
        }
    } while (reader.accept(","));
    reader.expect(")");
    return managed;
}

Type read_type(Reader &reader) {
    if (reader.now().kind == Token::Kind::Dot)
        for (const TypeName &known : types)
            if (reader.accept_dot(known.name))
                return known.type;
    if (reader.now().kind == Token::Kind::Dot)
        reader.fail("unknown or unsupported type " + quoted("." + std::string(reader.now().text)));
    reader.syntax_error();
}

// `.tex .u32 name` and `.tex .u64 name` of old PTX are `.global .texref name`.
static bool read_old_texture(Parsing &parsing, Variable &variable) {
    Reader &reader = parsing.reader;
    int line = reader.now().line;
    if (!reader.accept_dot("tex"))
        return false;
    if (parsing.tree.version >= first_version_without_tex)
        reader.report(line, ".tex is allowed before .version 1.5 only; use .global .texref");
    if (Type type = read_type(reader); type != Type::U32 && type != Type::U64)
        reader.report(line, "the type of a .tex is not .u32 or .u64");
    variable.reference = Variable::Reference::Texture;
    variable.type = Type::U64;
    variable.alignment = size_of(variable.type);
    return true;
}

bool at_variable(const Reader &reader) { return at_space(reader) || reader.at_dot("tex"); }

bool at_space(const Reader &reader) {
    for (const SpaceName &known : spaces)
        if (reader.at_dot(known.name))
            return true;
    return false;
}

void read_variables(Parsing &parsing, const Linkage &linkage, Function *function) {
    Reader &reader = parsing.reader;
    Variable variable;
    for (const SpaceName &known : spaces)
        if (reader.at_dot(known.name))
            variable.space = known.space;
    if (variable.space == Space::Param && !function)
        reader.syntax_error();
    if (variable.space == Space::Local && !function)
        leave_abi(parsing, linkage);
    if (!read_old_texture(parsing, variable)) {
        reader.take();
        read_qualifiers(reader, variable);
    }
    variable.visible = linkage.visible;
    variable.external = linkage.external;
    variable.weak = linkage.weak;
    variable.common = linkage.common;
    do
        read_variable(parsing, variable, function);
    while (reader.accept(","));
    reader.expect(";");
}

Variable read_parameter(Reader &reader, std::string_view &name, bool &in_register) {
    Variable variable;
    variable.space = Space::Param;
    in_register = reader.accept_dot("reg");
    if (!in_register && !reader.accept_dot("param"))
        reader.syntax_error();
    if (in_register && reader.accept_dot("pred")) {
        variable.is_predicate = true;
        variable.type = Type::U16;
        variable.alignment = size_of(variable.type);
    } else {
        read_qualifiers(reader, variable);
    }
    if (in_register) {
        variable.type = held_in_register(variable.type);
        variable.alignment = std::max(variable.alignment, size_of(variable.type));
    }
    // Skip the state space and alignment of the memory that it points to.
    if (reader.accept_dot("ptr")) {
        if (at_space(reader))
            reader.take();
        if (reader.accept_dot("align"))
            read_integer(reader);
    }
    name = reader.now().text;
    read_name(reader, variable);
    if (!in_register)
        read_dimensions(reader, variable);
    return variable;
}

} // namespace soft::ptx
