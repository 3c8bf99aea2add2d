#include "ptx/parsing.h"

#include <algorithm>

namespace soft::ptx {

namespace {

using Kind = Operand::Kind;

// The special registers that have no components such as .x.
constexpr const char *special_names[] = {"%laneid",
                                         "%warpid",
                                         "%nwarpid",
                                         "%smid",
                                         "%nsmid",
                                         "%gridid",
                                         "%lanemask_eq",
                                         "%lanemask_le",
                                         "%lanemask_lt",
                                         "%lanemask_ge",
                                         "%lanemask_gt",
                                         "%clock",
                                         "%clock_hi",
                                         "%clock64",
                                         "%globaltimer",
                                         "%globaltimer_lo",
                                         "%globaltimer_hi",
                                         "%cluster_ctarank",
                                         "%cluster_nctarank",
                                         "%is_explicit_cluster",
                                         "%total_smem_size",
                                         "%aggr_smem_size",
                                         "%dynamic_smem_size",
                                         "%current_graph_exec",
                                         "%reserved_smem_offset_begin",
                                         "%reserved_smem_offset_end",
                                         "%reserved_smem_offset_cap"};
constexpr const char *special_vectors[] = {"%tid",           "%ntid",          "%ctaid",
                                           "%nctaid",        "%clusterid",     "%nclusterid",
                                           "%cluster_ctaid", "%cluster_nctaid"};
constexpr const char *special_series[] = {"%pm", "%envreg", "%reserved_smem_offset_"};

template <size_t size> bool among(std::string_view name, const char *const (&names)[size]) {
    return std::find(names, names + size, name) != names + size;
}

// Returns whether the name is that of a numbered special register, such as %envreg3.
bool in_series(std::string_view name) {
    size_t digits = name.find_first_of("0123456789");
    return digits != std::string_view::npos && among(name.substr(0, digits), special_series);
}

enum class Place : uint8_t { Top, Part, Address };

class OperandReader {
  public:
    OperandReader(Parsing &parsing, Function &function)
        : parsing_(parsing), reader_(parsing.reader), function_(function) {}

    Operand whole() {
        if (reader_.at("["))
            return memory();
        if (reader_.at("{"))
            return vector();
        const Token first = reader_.now();
        Operand operand = simple(Place::Top);
        if (!reader_.accept("|"))
            return operand;
        if (operand.kind == Kind::Label)
            reader_.report(first.line, "unknown symbol " + quoted(operand.name));
        Operand pair;
        pair.kind = Kind::Pair;
        pair.parts.push_back(std::move(operand));
        pair.parts.push_back(simple(Place::Part));
        return pair;
    }

  private:
    // Reads a memory operand, such as [address+4] or [texture, {x, y}].
    Operand memory() {
        Operand memory;
        memory.kind = Kind::Memory;
        reader_.expect("[");
        do
            memory.parts.push_back(reader_.at("{") ? vector() : simple(Place::Address));
        while (reader_.accept(","));
        reader_.expect("]");
        std::swap(memory.addend, memory.parts[0].addend);
        return memory;
    }

    Operand vector() {
        Operand vector;
        vector.kind = Kind::Vector;
        reader_.expect("{");
        do
            vector.parts.push_back(simple(Place::Part));
        while (reader_.accept(","));
        reader_.expect("}");
        return vector;
    }

    // Reads an operand without braces or brackets. Only a vector register results in several parts.
    Operand simple(Place place) {
        Operand operand;
        bool negates = reader_.at("!") && reader_.after().kind == Token::Kind::Word;
        if (negates)
            reader_.take();
        if (reader_.now().kind == Token::Kind::Word && reader_.now().text != "WARP_SZ")
            named(operand, place);
        else
            constant(operand);
        if (negates && !is_predicate(operand))
            reader_.fail("'!' needs a predicate");
        operand.negated = negates;
        if (operand.kind == Kind::Variable && place == Place::Top && reader_.at("["))
            return element(std::move(operand));
        bool may_add = operand.kind == Kind::Register && operand.name.empty() &&
                       place != Place::Part && !is_predicate(operand);
        if ((may_add || operand.kind == Kind::Variable) && reader_.accept("+"))
            operand.addend = int64_t(read_integer(reader_));
        return operand;
    }

    // Reads an index after the name of an array, such as [3], [%r1] or [%r1+3].
    Operand element(Operand array) {
        const Variable &variable = array.scope == Operand::Scope::Function
                                       ? function_.variables[size_t(array.index)]
                                       : parsing_.tree.variables[size_t(array.index)];
        if (!variable.is_array)
            reader_.fail(quoted(variable.name) + " is no array, so it has no items");
        Operand element;
        element.kind = Kind::Element;
        element.bits = size_of(variable.type);
        element.parts.push_back(std::move(array));
        reader_.expect("[");
        bool constant = starts_constant(reader_);
        if (!constant) {
            const Token name = reader_.now();
            element.parts.push_back(simple(Place::Part));
            if (!is_index(element.parts[1]))
                reader_.fail("an index is a constant or an integer register, not " +
                             quoted(name.text));
        }
        if (constant || reader_.accept("+"))
            element.addend = int64_t(read_integer(reader_) * element.bits);
        reader_.expect("]");
        return element;
    }

    bool is_index(const Operand &operand) const {
        if (operand.kind != Kind::Register || !operand.name.empty())
            return false;
        Type type = function_.registers[size_t(operand.index)].type;
        return type >= Type::B16 && type <= Type::S64 && type != Type::B128 && size_of(type) > 1;
    }

    bool is_predicate(const Operand &operand) const {
        return operand.kind == Kind::Register &&
               function_.registers[size_t(operand.index)].type == Type::Pred;
    }

    void constant(Operand &operand) {
        if (!starts_constant(reader_))
            reader_.syntax_error();
        Constant value = read_constant(reader_);
        operand.kind = value.is_float() ? Kind::Float : Kind::Integer;
        operand.single = value.kind == Constant::Kind::Single;
        operand.bits = value.bits;
    }

    void named(Operand &operand, Place place) {
        const Token name = reader_.take();
        if (name.text == "_")
            return;
        const Symbol *symbol = parsing_.names.find(name.text, function_.registers);
        if (symbol && symbol->kind == Symbol::Kind::Register)
            in_register(operand, *symbol);
        else if (symbol || !special(operand, name))
            other(operand, symbol, name, place);
    }

    bool special(Operand &operand, const Token &name) {
        bool has_components = among(name.text, special_vectors);
        if (!has_components && !among(name.text, special_names) && !in_series(name.text))
            return false;
        operand.kind = Kind::Special;
        operand.name = name.text;
        if (has_components && reader_.now().kind == Token::Kind::Dot)
            operand.name += std::string(".") + "xyzw"[component()];
        return true;
    }

    // Reads a component of a vector, such as .x or .r, and returns its index.
    size_t component() {
        std::string_view name = reader_.now().text;
        size_t index = name.size() == 1 ? std::string_view("xyzwrgba").find(name) : 8;
        if (index > 7)
            reader_.syntax_error();
        reader_.take();
        return index % 4;
    }

    void in_register(Operand &operand, const Symbol &symbol) {
        operand.kind = Kind::Register;
        operand.index = symbol.index;
        bool dot = reader_.now().kind == Token::Kind::Dot;
        if (symbol.width == 1) {
            if (dot) // a part of a register, as in r.b0 of video instructions
                operand.name = reader_.take().text;
        } else if (dot) {
            size_t index = component();
            if (index >= size_t(symbol.width))
                reader_.fail("the vector has no such component");
            operand.index += int(index);
        } else {
            Operand component = operand;
            operand.kind = Kind::Vector;
            for (int i = 0; i < symbol.width; i++, component.index++)
                operand.parts.push_back(component);
        }
    }

    // Reads the name of a variable, a function or a label. References to labels are resolved when
    // the block ends.
    void other(Operand &operand, const Symbol *symbol, const Token &name, Place place) {
        operand.name = name.text;
        if (symbol && symbol->kind == Symbol::Kind::Variable) {
            operand.kind = Kind::Variable;
            operand.scope = symbol->scope;
            operand.index = symbol->index;
        } else if (symbol && symbol->kind == Symbol::Kind::Function) {
            operand.kind = Kind::Function;
            operand.index = symbol->index;
        } else {
            operand.kind = Kind::Label;
            if (place != Place::Top)
                reader_.report(name.line, "unknown symbol " + quoted(name.text));
        }
    }

    Parsing &parsing_;
    Reader &reader_;
    Function &function_;
};

} // namespace

Operand read_operand(Parsing &parsing, Function &function) {
    return OperandReader(parsing, function).whole();
}

} // namespace soft::ptx
