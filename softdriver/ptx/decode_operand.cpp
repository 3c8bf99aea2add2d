#include "ptx/decoder.h"

#include "base/range.h"
#include "ptx/memory.h"
#include "ptx/special.h"
#include "ptx/warp.h"

#include <algorithm>
#include <cstring>

// Decodes operands. Each operand becomes a row of the frame.

namespace soft::ptx {

namespace {

// Returns how many bytes a register occupies in its row for each lane: 0 for predicates, because
// their row has one bit for each lane, and at least 2 for other types.
size_t row_width(Type type) {
    size_t width = size_of(type);
    return width == 1 ? 2 : width;
}

template <class A> void add_offset(Warp &warp, const Step &step) {
    for (int lane = 0; lane < warp_size; lane++)
        warp.row<uint64_t>(step.rows[0])[lane] =
            uint64_t(warp.row<A>(step.rows[1])[lane]) + uint64_t(step.offset);
}

template <class T> void add_constant(Warp &warp, const Step &step) {
    for (int lane = 0; lane < warp_size; lane++)
        warp.row<T>(step.rows[0])[lane] = T(warp.row<T>(step.rows[1])[lane] + T(step.offset));
}

// The handler of array[index]. rows[1] has the address of the array, and rows[2] the indices; an
// item has `place` bytes. As on a GPU, the distance from the array has 32 bits, without a sign.
template <class A, class I> void add_index(Warp &warp, const Step &step) {
    A *result = warp.row<A>(step.rows[0]);
    const A *begin = warp.row<A>(step.rows[1]);
    const I *index = warp.row<I>(step.rows[2]);
    for (int lane = 0; lane < warp_size; lane++)
        result[lane] =
            A(begin[lane] + (uint32_t(index[lane]) * step.place + uint32_t(step.offset)));
}
template <class A> Handler add_index_of(size_t width) {
    return width == 2   ? add_index<A, uint16_t>
           : width == 4 ? add_index<A, uint32_t>
                        : add_index<A, uint64_t>;
}

constexpr size_t most_frame_bytes = 16 << 20;

void negate_predicate(Warp &warp, const Step &step) {
    warp.set_predicate(step.rows[0], ~warp.predicate(step.rows[1]));
}

} // namespace

void Decoder::lay_out_registers() {
    for (const Register &reg : function_.registers)
        rows_.push_back(temporary(row_width(reg.type)));
}

// Determines the offset of each variable and parameter in local memory. The offsets of a kernel's
// parameters are offsets in its parameter block.
void Decoder::lay_out_variables() {
    size_t end = 0;
    int number = 0;
    for (const Variable &variable : function_.variables) {
        bool parameter = number < function_.results + function_.parameters;
        bool local = variable.space == Space::Local ||
                     (variable.space == Space::Param && !(parameter && function_.entry));
        if (local) {
            end = round_up(end, std::max(variable.alignment, size_t{1}));
            local_offsets_.push_back(uint32_t(end));
            end += variable.bytes();
        } else
            local_offsets_.push_back(uint32_t(variable.offset));
        number++;
    }
    code_.local_bytes = round_up(end, 16);
    if (code_.local_bytes > most_local_bytes)
        refuse("it needs " + std::to_string(end) + " bytes of local memory; a thread has " +
               std::to_string(most_local_bytes));
}

// Adds a row to the frame. A row of predicates (width 0) is a mask of four bytes. All other rows
// are aligned to cache lines.
Row Decoder::temporary(size_t width) {
    size_t begin = round_up(code_.frame_bytes, width ? 64 : 4);
    code_.frame_bytes = begin + (width ? width * warp_size : 4);
    if (code_.frame_bytes > most_frame_bytes)
        refuse("the function has too many registers");
    return Row(begin);
}

void places_of(const Function &function, Places &results, Places &parameters) {
    size_t end = 0;
    for (int i = 0; i < function.results + function.parameters; i++) {
        const Variable &variable = function.variables[size_t(i)];
        end = round_up(end, std::max(variable.alignment, size_t{1}));
        (i < function.results ? results : parameters)
            .push_back({uint32_t(end), uint32_t(variable.bytes()), variable.is_predicate});
        end += variable.bytes();
    }
}

uint32_t Decoder::place_of_parameter(const Operand &operand, size_t bytes) const {
    const Variable *variable = named(operand);
    if (variable->space != Space::Param || variable->bytes() < bytes)
        refuse("'" + variable->name + "' must be a .param variable of " + std::to_string(bytes) +
               " bytes");
    return local_offset(operand.index);
}

Row Decoder::carry(bool reads, bool writes) {
    if (carry_ == ~Row{0})
        carry_ = temporary(0);
    if (reads)
        sources_.push_back({carry_, 0});
    if (writes)
        results_.push_back({carry_, 0});
    return carry_;
}

Row Decoder::stack_pointer() {
    if (code_.stack_pointer == Code::no_row) {
        Filling wanted;
        wanted.kind = Filling::Kind::Local;
        wanted.width = 8;
        wanted.value = code_.local_bytes;
        wanted.row = code_.stack_pointer = temporary(8);
        code_.fresh.push_back(wanted);
    }
    return code_.stack_pointer;
}

Row Decoder::row_of(const Operand &operand) const {
    if (!operand.name.empty())
        refuse("parts of registers are allowed in video instructions only");
    return rows_.at(size_t(operand.index));
}

Type Decoder::type_of(const Operand &operand) const {
    return function_.registers.at(size_t(operand.index)).type;
}

static void count_uses(const Operand &operand, std::vector<unsigned> &uses) {
    if (operand.kind == Operand::Kind::Register)
        uses.at(size_t(operand.index))++;
    for (const Operand &part : operand.parts)
        count_uses(part, uses);
}

bool Decoder::is_read(const Operand &operand) {
    if (operand.kind == Operand::Kind::Sink)
        return false;
    if (operand.kind != Operand::Kind::Register)
        return true;
    if (uses_.empty()) {
        uses_.resize(function_.registers.size());
        for (const Instruction &each : function_.body) {
            for (const Operand &used : each.operands)
                count_uses(used, uses_);
            if (each.guard >= 0)
                uses_.at(size_t(each.guard))++;
        }
        for (const Function::InRegister &result : function_.in_registers)
            uses_.at(size_t(result.reg))++;
    }
    return uses_.at(size_t(operand.index)) > 1;
}

Row Decoder::filling(Filling wanted, bool each_call) {
    std::string key(1, char(wanted.kind));
    key += std::to_string(wanted.width) + (wanted.generic ? "g" : "s") +
           std::to_string(wanted.value) + "+" + std::to_string(wanted.addend);
    if (wanted.special)
        key += wanted.special->name;
    auto found = known_.find(key);
    if (found != known_.end())
        return found->second;
    wanted.row = temporary(wanted.width);
    (each_call ? code_.fresh : code_.constants).push_back(wanted);
    return known_[key] = wanted.row;
}

Row Decoder::constant(size_t width, uint64_t bits) {
    Filling wanted;
    wanted.width = uint8_t(width);
    wanted.value = width == 0  ? bits != 0
                   : width < 8 ? bits & ((uint64_t{1} << 8 * width) - 1)
                               : bits;
    return filling(wanted, false);
}

uint64_t Decoder::literal(const Operand &operand, Type type) const {
    if (operand.kind == Operand::Kind::Integer) {
        if (is_float(type) && operand.bits != 0)
            refuse("an integer, where a floating-point constant is required");
        return operand.bits;
    }
    double number;
    float narrow;
    if (operand.single) {
        uint32_t bits = uint32_t(operand.bits);
        memcpy(&narrow, &bits, sizeof narrow);
        number = double(narrow);
    } else {
        memcpy(&number, &operand.bits, sizeof number);
        narrow = float(number);
    }
    uint32_t single;
    uint64_t twice;
    memcpy(&single, &narrow, sizeof single);
    memcpy(&twice, &number, sizeof twice);
    if (size_of(type) == 4 && type != Type::F16x2 && type != Type::BF16x2)
        return operand.single ? operand.bits : single;
    if (size_of(type) == 8)
        return twice;
    refuse("a floating-point constant cannot have this type");
}

const Variable *Decoder::named(const Operand &operand) const {
    if (operand.kind != Operand::Kind::Variable)
        return nullptr;
    return operand.scope == Operand::Scope::Module
               ? &decoding_.tree.variables.at(size_t(operand.index))
               : &function_.variables.at(size_t(operand.index));
}

Space Decoder::space_of(const Variable &variable, Space space) const {
    static const char *const names[] = {"generic", "reg",   "const", "global",
                                        "local",   "param", "shared"};
    if (variable.reference != Variable::Reference::None)
        refuse("'" + variable.name + "' is a reference, whose memory cannot be accessed");
    bool may_be_generic = variable.space != Space::Const && variable.space != Space::Param;
    if (space != variable.space && (space != Space::Generic || !may_be_generic))
        refuse("'" + variable.name + "' is in ." + names[int(variable.space)] +
               ", so the instruction needs this state space");
    return variable.space;
}

Row Decoder::address_of(const Operand &operand, size_t width) {
    const Variable &variable = *named(operand);
    bool of_module = operand.scope == Operand::Scope::Module;
    Filling wanted;
    wanted.width = uint8_t(width);
    wanted.addend = operand.addend;
    if (width < 4)
        refuse("an address does not fit the type");
    switch (variable.space) {
    case Space::Global:
    case Space::Const: {
        int index = of_module ? decoding_.program_variables.at(size_t(operand.index)) : -1;
        if (index < 0)
            refuse("'" + variable.name + "' is not supported by the software driver");
        wanted.kind = Filling::Kind::Variable;
        wanted.value = uint64_t(index);
        return filling(wanted, false);
    }
    case Space::Shared:
        wanted.kind = Filling::Kind::Shared;
        wanted.value = decoding_.shared.at({of_module ? -1 : index_, operand.index});
        return filling(wanted, false);
    case Space::Local:
    case Space::Param: {
        if (of_module)
            return constant(width, decoding_.local.at(operand.index) + uint64_t(operand.addend));
        bool kernels = variable.space == Space::Param && is_kernel_parameter(operand);
        wanted.kind = kernels ? Filling::Kind::Parameter : Filling::Kind::Local;
        wanted.value = local_offset(operand.index);
        return filling(wanted, !kernels);
    }
    default:
        refuse("'" + variable.name + "' has no address");
    }
}

// Notes a register, or the row of a constant, for the flow of the instruction.
void Decoder::note(std::vector<Part> &parts, const Operand &operand, Row row, Type type) const {
    bool reg = is_register(operand) && operand.name.empty();
    parts.push_back(reg ? Part{row_of(operand), uint8_t(row_width(type_of(operand)))}
                        : Part{row, uint8_t(row_width(type))});
}

Row Decoder::source(const Operand &operand, Type type) {
    Row row = value(operand, type);
    note(sources_, operand, row, type);
    return row;
}

Row Decoder::value(const Operand &operand, Type type) {
    size_t width = size_of(type);
    switch (operand.kind) {
    case Operand::Kind::Register:
        if (operand.negated)
            refuse("'!' is allowed before predicates only");
        if (row_width(type_of(operand)) != row_width(type) ||
            (type_of(operand) == Type::Pred) != (type == Type::Pred))
            refuse("register " + function_.registers[size_t(operand.index)].name +
                   " has not the width of the type");
        return operand.addend ? sum(operand) : row_of(operand);
    case Operand::Kind::Special: {
        const Special *special = find_special(operand.name);
        if (!special || !special->value)
            refuse(operand.name + " cannot be read here");
        // Old PTX reads the lower half of special registers.
        if (special->width > width && width && (width != 2 || special->width != 4) &&
            operand.name != "%gridid")
            refuse(operand.name + " does not fit the type");
        code_.uses_reserved_shared |= is_in_reserved_shared(*special);
        Filling wanted;
        wanted.kind = Filling::Kind::Special;
        wanted.width = uint8_t(width);
        wanted.special = special;
        return filling(wanted, special->of_block);
    }
    case Operand::Kind::Integer:
    case Operand::Kind::Float:
        return constant(width == 1 ? 2 : width, literal(operand, type));
    case Operand::Kind::Variable:
        return address_of(operand, width);
    case Operand::Kind::Element:
        return element(operand, width);
    case Operand::Kind::Function:
        if (width != 8)
            refuse("the address of a function has 64 bits");
        return constant(8, function_address(size_t(operand.index)));
    default:
        refuse("an operand of the wrong kind");
    }
}

// Returns a row with the value of a register plus its addend.
Row Decoder::sum(const Operand &operand) {
    if (is_float(type_of(operand)))
        refuse("a number can be added to integer registers only");
    size_t width = row_width(type_of(operand));
    Step add;
    add.rows[0] = temporary(width);
    add.rows[1] = row_of(operand);
    add.offset = operand.addend;
    add.run = by_width(width, [](auto zero) -> Handler { return add_constant<decltype(zero)>; });
    if (!add.run)
        refuse_types();
    emit_before(add);
    return add.rows[0];
}

// Returns the row with the address of array[index], as a number of `width` bytes.
Row Decoder::element(const Operand &operand, size_t width) {
    Operand begin = operand.parts[0];
    if (operand.parts.size() == 1) {
        begin.addend = uint32_t(operand.addend);
        return address_of(begin, width);
    }
    Step sum;
    sum.rows[1] = address_of(begin, width);
    sum.rows[2] = row_of(operand.parts[1]);
    sum.rows[0] = temporary(width);
    sum.place = uint32_t(operand.bits);
    sum.offset = operand.addend;
    size_t index = row_width(type_of(operand.parts[1]));
    sum.run = width == 8 ? add_index_of<uint64_t>(index) : add_index_of<uint32_t>(index);
    emit_before(sum);
    return sum.rows[0];
}

Row Decoder::wide_source(const Operand &operand, Type type, size_t &width) {
    width = row_width(type);
    if (!is_register(operand))
        return source(operand, type);
    size_t own = row_width(type_of(operand));
    if (own < size_of(type) || type_of(operand) == Type::Pred)
        refuse("register " + function_.registers[size_t(operand.index)].name +
               " is narrower than the type");
    width = own;
    note(sources_, operand, 0, type);
    return operand.addend ? sum(operand) : row_of(operand);
}

Row Decoder::wide_destination(const Operand &operand, Type type, size_t &width) {
    if (operand.kind == Operand::Kind::Sink) {
        width = row_width(type);
        results_.push_back({temporary(width), uint8_t(width)});
        return results_.back().row;
    }
    if (!is_register(operand) || operand.addend)
        refuse("a register is needed to hold the result");
    Row row = wide_source(operand, type, width);
    results_.push_back(sources_.back());
    sources_.pop_back();
    return row;
}

Row Decoder::destination(const Operand &operand, Type type) {
    if (operand.kind == Operand::Kind::Sink) {
        results_.push_back({temporary(row_width(type)), uint8_t(row_width(type))});
        return results_.back().row;
    }
    if (!is_register(operand) || operand.addend)
        refuse("a register is needed to hold the result");
    Row row = value(operand, type);
    note(results_, operand, row, type);
    return row;
}

Row Decoder::predicate(const Operand &operand) {
    if (!operand.negated || !is_register(operand))
        return source(operand, Type::Pred);
    if (type_of(operand) != Type::Pred)
        refuse("'!' is allowed before predicates only");
    Step negation;
    negation.run = negate_predicate;
    negation.rows[0] = temporary(0);
    negation.rows[1] = row_of(operand);
    note(sources_, operand, 0, Type::Pred);
    emit_before(negation);
    return negation.rows[0];
}

uint64_t Decoder::integer(const Operand &operand) const {
    if (operand.kind != Operand::Kind::Integer)
        refuse("a constant is needed");
    return operand.bits;
}

size_t Decoder::address(const Operand &operand) {
    if (operand.kind != Operand::Kind::Memory || operand.parts.size() != 1)
        refuse("an address in brackets is needed");
    const Operand &base = operand.parts[0];
    step.offset = operand.addend;
    step.site = decoding_.library.sites++;
    if (!is_register(base)) {
        step.rows[9] = value(base, Type::U64);
        return 8;
    }
    size_t width = size_of(type_of(base));
    if (width != 4 && width != 8)
        refuse("an address must be in a register of 32 or 64 bits");
    step.rows[9] = row_of(base);
    return width;
}

size_t Decoder::address_of_element(const Operand &operand) {
    step.site = decoding_.library.sites++;
    step.rows[9] = element(operand, 8);
    return 8;
}

Row Decoder::whole_address(const Operand &operand) {
    size_t width = address(operand);
    if (is_register(operand.parts[0]))
        note(sources_, operand.parts[0], 0, Type::U64);
    Step sum;
    sum.offset = step.offset;
    sum.rows[1] = step.rows[9];
    step.offset = 0;
    if (width == 8 && sum.offset == 0)
        return sum.rows[1];
    sum.rows[0] = temporary(8);
    sum.run = width == 4 ? add_offset<uint32_t> : add_offset<uint64_t>;
    emit_before(sum);
    return sum.rows[0];
}

} // namespace soft::ptx
