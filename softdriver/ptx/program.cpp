#include "program.h"

#include "decoder.h"
#include "families.h"
#include "parser.h"

#include <algorithm>

namespace soft::ptx {

const std::unordered_map<std::string_view, Decode> &opcodes() {
    static const Opcodes known = [] {
        Opcodes all;
        for (auto add : {add_load_store, add_moves, add_control, add_barriers, add_integer,
                         add_bits, add_comparisons, add_conversions, add_float, add_approximate,
                         add_atomics, add_shuffles})
            add(all);
        return all;
    }();
    return known;
}

namespace {

size_t aligned(size_t offset, size_t alignment) {
    alignment = std::max(alignment, size_t{1});
    return (offset + alignment - 1) / alignment * alignment;
}

// The functions that a function may call, itself first.
std::vector<int> reachable(const Tree &tree, int from) {
    std::vector<int> found{from};
    std::vector<bool> seen(tree.functions.size());
    seen[size_t(from)] = true;
    bool indirect = false;
    for (size_t i = 0; i < found.size(); i++) {
        const Function &function = tree.functions[size_t(found[i])];
        auto add = [&](int called) {
            if (called >= 0 && !seen[size_t(called)]) {
                seen[size_t(called)] = true;
                found.push_back(called);
            }
        };
        for (int called : function.calls)
            add(called);
        for (const Instruction &instruction : function.body)
            indirect =
                indirect || (instruction.opcode == "call" && instruction.operands.size() > 1 &&
                             instruction.operands[1].kind == Operand::Kind::Register);
        // Whatever has an address may be meant.
        if (indirect && i + 1 == found.size())
            for (size_t other = 0; other < tree.functions.size(); other++)
                if (!tree.functions[other].entry)
                    add(int(other));
    }
    return found;
}

// Of the local memory that a function and what it calls need; of recursion one turn is counted.
size_t local_bytes(const Decoding &decoding, int function, std::vector<bool> &open) {
    const auto &code = decoding.library.codes[size_t(function)];
    if (!code || open[size_t(function)])
        return 0;
    open[size_t(function)] = true;
    size_t deepest = 0;
    for (int called : decoding.tree.functions[size_t(function)].calls)
        deepest = std::max(deepest, local_bytes(decoding, called, open));
    open[size_t(function)] = false;
    return code->local_bytes + deepest;
}

void number_shared(Decoding &decoding) {
    unsigned next = 0;
    auto add = [&](int function, const std::vector<Variable> &variables) {
        for (size_t i = 0; i < variables.size(); i++)
            if (variables[i].space == Space::Shared)
                decoding.shared[{function, int(i)}] = next++;
    };
    add(-1, decoding.tree.variables);
    for (size_t i = 0; i < decoding.tree.functions.size(); i++)
        add(int(i), decoding.tree.functions[i].variables);
}

// Whether the module's shared variables are named by any of these functions.
bool mentions(const Operand &operand, int variable) {
    if (operand.kind == Operand::Kind::Variable && operand.scope == Operand::Scope::Module &&
        operand.index == variable)
        return true;
    return std::any_of(operand.parts.begin(), operand.parts.end(),
                       [&](const Operand &part) { return mentions(part, variable); });
}
bool mentions(const Tree &tree, const std::vector<int> &functions, int variable) {
    for (int function : functions)
        for (const Instruction &instruction : tree.functions[size_t(function)].body)
            for (const Operand &operand : instruction.operands)
                if (mentions(operand, variable))
                    return true;
    return false;
}

// The kernel's static shared memory; arrays without a size begin at its end.
size_t lay_out_shared(const Decoding &decoding, const std::vector<int> &functions, Code &code) {
    size_t end = 0, alignment = 1;
    std::vector<unsigned> dynamic;
    code.shared_offsets.assign(decoding.shared.size(), 0);
    for (auto &[place, number] : decoding.shared) {
        auto [function, index] = place;
        bool used = function < 0 ? mentions(decoding.tree, functions, index)
                                 : std::find(functions.begin(), functions.end(), function) !=
                                       functions.end();
        if (!used)
            continue;
        const Variable &variable =
            function < 0 ? decoding.tree.variables[size_t(index)]
                         : decoding.tree.functions[size_t(function)].variables[size_t(index)];
        if (variable.count == 0) {
            dynamic.push_back(number);
            alignment = std::max(alignment, variable.alignment);
            continue;
        }
        end = aligned(end, variable.alignment);
        code.shared_offsets[number] = end;
        end += variable.bytes();
    }
    if (!dynamic.empty())
        end = aligned(end, alignment);
    for (unsigned number : dynamic)
        code.shared_offsets[number] = end;
    return end;
}

// A guess: a register of 32 bits for each that is named, within what hardware has.
unsigned estimate_registers(const Function &function) {
    size_t words = 8;
    for (const Register &reg : function.registers)
        words += size_of(reg.type) > 4 ? 2 : reg.type == Type::Pred ? 0 : 1;
    unsigned most = function.max_registers ? function.max_registers : 255;
    return std::min(unsigned(std::min(words / 2 + 8, size_t{255})), most);
}

// Where decoded functions and the module's variables come to be.
void prepare(Decoding &decoding, Program &program) {
    const Tree &tree = decoding.tree;
    for (size_t i = 0; i < tree.functions.size(); i++) {
        decoding.library.codes.emplace_back();
        if (!tree.functions[i].defined)
            continue;
        auto code = std::make_unique<Code>();
        code->name = tree.functions[i].name;
        code->entry = tree.functions[i].entry;
        code->index = int(i);
        code->library = &decoding.library;
        decoding.library.codes.back() = std::move(code);
    }
    for (const Variable &variable : tree.variables) {
        bool kept = variable.space == Space::Global || variable.space == Space::Const;
        decoding.program_variables.push_back(kept ? int(program.variables.size()) : -1);
        if (kept)
            program.variables.push_back(variable);
    }
    for (Variable &variable : program.variables)
        for (Variable::Address &address : variable.addresses)
            if (!address.function) {
                address.target = decoding.program_variables.at(size_t(address.target));
                if (address.target < 0)
                    decoding.problems.push_back(
                        {variable.line, "the address in '" + variable.name +
                                            "' is of nothing in .global or .const"});
            }
    number_shared(decoding);
}

Kernel describe(const Decoding &decoding, int index, const std::shared_ptr<Library> &library) {
    const Function &function = decoding.tree.functions[size_t(index)];
    Code &code = *library->codes[size_t(index)];
    Kernel kernel;
    kernel.name = function.name;
    kernel.parameters.assign(function.variables.begin(),
                             function.variables.begin() + function.parameters);
    for (const Variable &parameter : kernel.parameters)
        kernel.parameter_bytes =
            std::max(kernel.parameter_bytes, parameter.offset + parameter.bytes());
    std::vector<int> functions = reachable(decoding.tree, index);
    kernel.shared_bytes = lay_out_shared(decoding, functions, code);
    std::vector<bool> open(decoding.tree.functions.size());
    kernel.local_bytes = local_bytes(decoding, index, open);
    for (size_t i = 0; i < decoding.tree.variables.size(); i++)
        if (decoding.tree.variables[i].space == Space::Const &&
            mentions(decoding.tree, functions, int(i)))
            kernel.const_bytes += decoding.tree.variables[i].bytes();
    for (int i = 0; i < 3; i++) {
        kernel.max_threads[i] = function.max_threads[i];
        kernel.required_threads[i] = function.required_threads[i];
        kernel.required_cluster[i] = function.required_cluster[i];
    }
    kernel.registers = estimate_registers(function);
    kernel.code = std::shared_ptr<const Code>(library, &code);
    return kernel;
}

} // namespace

std::shared_ptr<const Program> decode(const Tree &tree, std::vector<Problem> &problems) {
    size_t before = problems.size();
    auto program = std::make_shared<Program>();
    auto library = std::make_shared<Library>();
    Decoding decoding{tree, problems, *library, {}, {}};
    program->version = tree.version;
    program->capability = tree.capability;
    prepare(decoding, *program);
    for (size_t i = 0; i < tree.functions.size(); i++)
        if (tree.functions[i].defined)
            Decoder(decoding, int(i)).decode();
    for (size_t i = 0; i < tree.functions.size(); i++) {
        const Function &function = tree.functions[i];
        if (function.defined && function.entry)
            program->kernels.push_back(describe(decoding, int(i), library));
        else if (function.visible)
            program->functions.push_back(function.name);
    }
    if (problems.size() > before)
        return nullptr;
    return program;
}

std::shared_ptr<const Program> compile(std::string_view text, std::vector<Problem> &problems) {
    std::optional<Tree> tree = parse(text, problems);
    return tree ? decode(*tree, problems) : nullptr;
}

} // namespace soft::ptx
