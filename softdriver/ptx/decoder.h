#pragma once

#include "ptx/code.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

// This header has the decoder, which converts the instructions of a syntax tree (ast.h) to steps
// (code.h).

namespace soft::ptx {

// What the decoders of all functions of a module share.
struct Decoding {
    const Tree &tree;
    std::vector<Problem> &problems;
    Library &library;
    bool is_part; // true if other parts of the program may define functions of this module
    // For each variable in Tree::variables, its index in Program::variables.
    std::vector<int> program_variables;
    // For each shared variable, its number. The key is the function (-1 for the module) and the
    // index of the variable.
    std::map<std::pair<int, int>, unsigned> shared;
    // For each variable in Tree::variables that is in .local, its offset in local memory.
    std::map<int, uint32_t> local;
};

class Decoder;
using Decode = void (*)(Decoder &);
// Returns the table of opcodes, which has the function that decodes each opcode.
const std::unordered_map<std::string_view, Decode> &opcodes();

// Decodes one function. The functions that decode opcodes use this class to read the current
// instruction and to emit steps.
class Decoder {
  public:
    Decoder(Decoding &decoding, int function);
    void decode();

    // The step that emit() will append.
    Step step;
    Effect effect;              // of that step; emit() clears it
    void emit(Handler handler); // appends `step` with this handler
    // Appends the step `other` before `step`. `other` runs in all lanes, whatever the guard of the
    // instruction says.
    void emit_before(const Step &other);

    [[noreturn]] void refuse(const std::string &why) const;
    // Refuses correct PTX that real drivers refuse, too. Loading it fails with
    // CUDA_ERROR_NOT_SUPPORTED.
    [[noreturn]] void refuse_as_nvidia(const std::string &why) const;
    [[noreturn]] void refuse_types() const { refuse("not supported with this type"); }

    // The next functions read modifiers of the instruction and mark them as taken. A modifier that
    // no function has taken in the end is an error.
    bool take(std::string_view modifier);
    // Both functions take one of these modifiers and return its index in the list, or -1 if the
    // instruction has none of them. If it has several, take_any() takes the one that comes first in
    // the list, and take_first() the one that comes first in the instruction.
    int take_any(std::initializer_list<std::string_view> modifiers);
    int take_first(std::initializer_list<std::string_view> modifiers);
    Type take_type(); // takes the next modifier, which must be a type
    bool next_is_type() const;
    bool any_left(std::string_view modifier) const;
    void take_all(std::initializer_list<std::string_view> harmless);

    size_t operands() const { return instruction_->operands.size(); }
    void expect_operands(size_t least, size_t most) const;
    void expect_operands(size_t count) const { expect_operands(count, count); }
    const Operand &operand(size_t n) const { return instruction_->operands.at(n); }

    // Return the row of an operand. The width of a register must be that of the type.
    Row source(const Operand &operand, Type type);
    Row destination(const Operand &operand, Type type);
    // Like source() and destination(), but a register may be wider than the type. They set `width`
    // to the width of the register.
    Row wide_source(const Operand &operand, Type type, size_t &width);
    Row wide_destination(const Operand &operand, Type type, size_t &width);
    Row predicate(const Operand &operand); // also accepts a negated predicate, !p
    Row constant(size_t width, uint64_t bits);
    uint64_t integer(const Operand &operand) const; // returns the value of an integer constant
    bool is_register(const Operand &operand) const {
        return operand.kind == Operand::Kind::Register;
    }
    Type type_of(const Operand &operand) const; // returns the type of a register
    // Returns whether the operand is a register that has a constant value in its row, so that its
    // definition needs no step.
    bool is_constant(const Operand &operand) const {
        return is_register(operand) && constant_.at(size_t(operand.index));
    }
    // Returns whether the value of a destination may be used later. Returns false for `_`, and for
    // a register that has no other use in the function, and otherwise true.
    bool is_read(const Operand &operand);
    Row temporary(size_t width);
    // Returns the row of CC.CF, the carry flag, which the instruction reads or writes.
    Row carry(bool reads, bool writes);
    Row stack_pointer(); // returns the row Code::stack_pointer
    // Returns the row of a parameter of the kernel, if the operand is [name] or [name+number].
    std::optional<Row> argument(const Operand &from, Type type);
    // Decodes the operand [a+b]. Sets rows[9], `offset` and `site` of the step, and returns the
    // width of the address in bytes.
    size_t address(const Operand &operand);
    // Decodes the operand array[index] of a memory access, as address() does.
    size_t address_of_element(const Operand &operand);
    // Returns the row of the address [a+b] as a number of 64 bits. Sets `site` of the step.
    Row whole_address(const Operand &operand);
    // Returns the state space of an access to a variable by an instruction that names `space`.
    // Refuses another space than that of the variable, as NVIDIA's driver does.
    Space space_of(const Variable &variable, Space space) const;
    // Returns the variable that an operand names, or null.
    const Variable *named(const Operand &operand) const;
    bool is_kernel_parameter(const Operand &variable) const {
        return function_.entry && variable.scope == Operand::Scope::Function &&
               variable.index < function_.parameters;
    }
    uint32_t local_offset(int variable) const { return local_offsets_.at(size_t(variable)); }
    // Returns the offset in local memory of the .param variable that is a result or an argument of
    // a call. The variable must have at least this many bytes.
    uint32_t place_of_parameter(const Operand &operand, size_t bytes) const;
    const Function &function() const { return function_; }
    const Tree &tree() const { return decoding_.tree; }
    Code &code() { return code_; }
    Decoding &decoding() { return decoding_; }

  private:
    void decode_instruction(const Instruction &instruction);
    void lay_out_registers();
    void lay_out_variables();
    void count_definitions();
    void note_constant(const Instruction &instruction);
    std::optional<Row> constant_of(const Instruction &instruction, Type type);
    void resolve_branches();
    void guard();
    void append(const Step &appended);
    Flow flow();
    Row value(const Operand &operand, Type type);
    void note(std::vector<Part> &parts, const Operand &operand, Row row, Type type) const;
    Row row_of(const Operand &operand) const;
    Row filling(Filling filling, bool each_call);
    Row address_of(const Operand &operand, size_t width);
    Row element(const Operand &operand, size_t width);
    Row sum(const Operand &operand);
    uint64_t literal(const Operand &operand, Type type) const;

    Decoding &decoding_;
    const int index_;
    const Function &function_;
    Code &code_;
    const Instruction *instruction_ = nullptr;
    std::vector<bool> taken_; // for each modifier of the instruction, whether it has been taken
    std::vector<Row> rows_;   // the row of each register
    std::vector<uint32_t> local_offsets_;
    std::vector<uint32_t> begins_;      // index of the first step of each instruction
    std::vector<unsigned> definitions_; // for each register, how many instructions may define it
    std::vector<bool> constant_;        // for each register, whether is_constant() is true
    std::vector<unsigned> uses_;        // for each register, how many operands are the register
    std::map<std::string, Row> known_;
    std::vector<Part> results_, sources_; // the registers of the instruction
    bool flushes_ = false; // true if the instruction lacks .ftz, but runs as if it had .ftz
    Row carry_ = ~Row{0};
};

// Takes the scope of an access or a fence. Without one, it is the device.
Effect::Scope take_scope(Decoder &decoder);

// Calls `choose` with a 0 of the unsigned type that has this width in bytes, and returns the
// result. Returns null if there is no such type.
template <class Choose> Handler by_width(size_t width, Choose choose) {
    switch (width) {
    case 1:
        return choose(uint8_t());
    case 2:
        return choose(uint16_t());
    case 4:
        return choose(uint32_t());
    case 8:
        return choose(uint64_t());
    default:
        return nullptr;
    }
}

// Computes the places of a function's results and parameters in its local memory, where they come
// first.
void places_of(const Function &function, Places &results, Places &parameters);

Type type_named(std::string_view name); // returns Type::None if there is no such type
bool is_float(Type type);
bool is_signed(Type type);
bool is_bits(Type type);
// Returns the opcode with its modifiers, as the PTX text has them.
std::string written(const Instruction &instruction);
// Returns how the results of an instruction depend on its sources, without its registers.
Flow flow_of(const Instruction &instruction);

} // namespace soft::ptx
