#include "ptx/parsing.h"

#include <algorithm>

// This file reads declarations of registers. It also moves values between memory and the registers
// that other functions see: parameters and results in registers, and the registers of the module.

namespace soft::ptx {

namespace {

using Kind = Operand::Kind;

constexpr uint64_t most_registers = uint64_t{1} << 24; // limit for one declaration, such as %r<100>

// The place in memory of a register's value.
struct Home {
    Space space = Space::Param;
    Operand::Scope scope = Operand::Scope::Function;
    int variable = 0;
    size_t offset = 0;
};

Operand register_of(int index) {
    Operand operand;
    operand.kind = Kind::Register;
    operand.index = index;
    return operand;
}

Operand constant(uint64_t bits) {
    Operand operand;
    operand.kind = Kind::Integer;
    operand.bits = bits;
    return operand;
}

void append(Function &function, int line, const char *opcode, std::vector<std::string> modifiers,
            std::vector<Operand> operands) {
    Instruction instruction;
    instruction.line = line;
    instruction.opcode = opcode;
    instruction.modifiers = std::move(modifiers);
    instruction.operands = std::move(operands);
    function.body.push_back(std::move(instruction));
}

// Appends an instruction such as `ld.param.b32 register, [home]`, or the store in the other
// direction.
void append_access(Function &function, int line, int reg, const Home &home, bool load) {
    static const char *const types[] = {"b8", "b16", "b32", "b64", "b128"};
    size_t size = size_of(function.registers[size_t(reg)].type), log = 0;
    while (size_t{1} << log < size)
        log++;
    Operand variable, memory;
    variable.kind = Kind::Variable;
    variable.scope = home.scope;
    variable.index = home.variable;
    memory.kind = Kind::Memory;
    memory.addend = int64_t(home.offset);
    memory.parts.push_back(variable);
    const char *space = home.space == Space::Param ? "param" : "local";
    if (load)
        append(function, line, "ld", {space, types[log]}, {register_of(reg), memory});
    else
        append(function, line, "st", {space, types[log]}, {memory, register_of(reg)});
}

// Appends instructions that load or store the value of a register. A predicate is in memory as a
// number of 16 bits, 0 or 1.
void append_move(Function &function, int line, int reg, const Home &home, bool load) {
    if (function.registers[size_t(reg)].type != Type::Pred)
        return append_access(function, line, reg, home, load);
    int number = add_registers(function.registers, "", Type::U16, 1);
    if (!load)
        append(function, line, "selp", {"u16"},
               {register_of(number), constant(1), constant(0), register_of(reg)});
    append_access(function, line, number, home, load);
    if (load)
        append(function, line, "setp", {"ne", "u16"},
               {register_of(reg), register_of(number), constant(0)});
}

Home home_of(const Function::InRegister &each) {
    return {Space::Param, Operand::Scope::Function, each.variable, each.offset};
}

// Returns the home of a register of the module: a variable of the module in .local.
Home home_in_module(Parsing &parsing, int reg) {
    std::vector<int> &homes = parsing.homes;
    homes.resize(parsing.names.module_registers().size(), -1);
    int &home = homes[size_t(reg)];
    if (home < 0) {
        const Register &known = parsing.names.module_registers()[size_t(reg)];
        Variable variable;
        variable.name = known.name;
        variable.space = Space::Local;
        variable.type = known.type == Type::Pred ? Type::U16 : known.type;
        variable.alignment = size_of(variable.type);
        home = int(parsing.tree.variables.size());
        parsing.tree.variables.push_back(std::move(variable));
    }
    return {Space::Local, Operand::Scope::Module, home, 0};
}

// Replaces the targets of branches by their new places.
void move_labels(Operand &operand, const std::vector<int> &places) {
    if (operand.kind == Kind::Label)
        operand.index = places.at(size_t(operand.index));
    for (Operand &part : operand.parts)
        move_labels(part, places);
}

// Adds the instructions that keep the values of the module's registers in memory while other
// functions run.
class Sharing {
  public:
    Sharing(Parsing &parsing, Function &function, std::vector<SharedRegister> shared)
        : parsing_(parsing), function_(function), shared_(std::move(shared)) {}

    void add() {
        std::vector<Instruction> body = std::move(function_.body);
        std::vector<int> places;
        function_.body.clear();
        move_all(true, function_.line);
        for (Instruction &each : body) {
            places.push_back(int(function_.body.size()));
            bool calls = each.opcode == "call", returns = each.opcode == "ret";
            int line = each.line;
            Operand results = calls ? each.operands.at(0) : Operand();
            if (calls || returns)
                move_all(false, line);
            function_.body.push_back(std::move(each));
            if (calls)
                move_all(true, line, results);
        }
        places.push_back(int(function_.body.size()));
        move_all(false, function_.body.back().line);
        for (Instruction &each : function_.body)
            for (Operand &operand : each.operands)
                move_labels(operand, places);
    }

  private:
    // Loads or stores all registers, but not those that receive the `results` of a call.
    void move_all(bool load, int line, const Operand &results = {}) {
        for (const SharedRegister &each : shared_) {
            auto is_result = [&](const Operand &result) { return has(result, each.of_function); };
            if (is_result(results))
                continue;
            parsing_.spend(4 * sizeof(Instruction)); // with its operands
            append_move(function_, line, each.of_function, home_in_module(parsing_, each.of_module),
                        load);
        }
    }

    static bool has(const Operand &operand, int reg) {
        auto in_part = [reg](const Operand &part) { return has(part, reg); };
        return (operand.kind == Kind::Register && operand.index == reg) ||
               std::any_of(operand.parts.begin(), operand.parts.end(), in_part);
    }

    Parsing &parsing_;
    Function &function_;
    std::vector<SharedRegister> shared_;
};

} // namespace

void read_registers(Parsing &parsing, Function *function) {
    Reader &reader = parsing.reader;
    std::vector<Register> &registers =
        function ? function->registers : parsing.names.module_registers();
    if (reader.accept_dot("align"))
        read_integer(reader);
    int width = reader.accept_dot("v2") ? 2 : reader.accept_dot("v4") ? 4 : 1;
    Type type = read_type(reader);
    do {
        int line = reader.now().line;
        std::string_view name = reader.word();
        bool fresh;
        if (reader.accept("<")) {
            // Read a number, not a constant expression: in an expression, `>` would be an operator.
            uint64_t count = reader.expect_kind(Token::Kind::Integer).bits;
            if (count > most_registers)
                reader.fail("too many registers " + quoted(name) + ": " + std::to_string(count));
            reader.expect(">");
            fresh = parsing.names.define_range(name, {type, width, count});
        } else {
            Symbol symbol;
            symbol.width = width;
            symbol.index = int(registers.size());
            fresh = parsing.names.define(name, symbol);
            if (fresh)
                add_registers(registers, name, type, width);
        }
        if (!fresh)
            reader.report(line, "duplicate definition of " + quoted(name));
    } while (reader.accept(","));
    reader.expect(";");
}

void leave_abi(Parsing &parsing, const Linkage &linkage) {
    Reader &reader = parsing.reader;
    if (parsing.tree.version >= first_version_with_abi)
        reader.report(reader.now().line, "registers and local memory outside of functions are "
                                         "allowed before .version 3.0 only");
    if (linkage.external)
        reader.report(reader.now().line, "registers and local memory cannot be .extern");
    parsing.tree.without_abi = true;
}

void load_parameters(Function &function) {
    for (const Function::InRegister &each : function.in_registers)
        if (each.variable >= function.results)
            append_move(function, function.line, each.reg, home_of(each), true);
}

void store_results(Function &function, int line) {
    for (const Function::InRegister &each : function.in_registers)
        if (each.variable < function.results)
            append_move(function, line, each.reg, home_of(each), false);
}

void share_registers(Parsing &parsing, Function &function) {
    std::vector<SharedRegister> shared = parsing.names.take_shared();
    if (!shared.empty())
        Sharing(parsing, function, std::move(shared)).add();
}

} // namespace soft::ptx
