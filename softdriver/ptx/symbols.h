#pragma once

#include "ptx/ast.h"

#include <string_view>
#include <unordered_map>
#include <vector>

namespace soft::ptx {

// The thing that a name stands for.
struct Symbol {
    enum class Kind : uint8_t {
        Register,
        Variable,
        Function,
        Label,
        Prototype, // declared by .callprototype
        List,      // declared by .branchtargets or .calltargets
    };

    Kind kind = Kind::Register;
    Operand::Scope scope = Operand::Scope::Module; // for a variable: the scope that declares it
    int width = 1; // for a register: the number of its components; the first has the index `index`
    int index = 0;
};

// The registers of a declaration such as `%r<100>`. A register is created when the code first uses
// it.
struct RegisterRange {
    Type type = Type::None;
    int width = 1;
    uint64_t count = 0;
};

// A use of a name that may be defined later in the same block or in an outer block.
struct Reference {
    size_t instruction, operand;
    int part; // the name is the whole operand (-1) or its parts[part] (see Operand)
    int line;
};

// One scope, with the names that are declared between a pair of braces. The outermost scope is the
// module.
struct Block {
    std::unordered_map<std::string_view, Symbol> symbols;
    std::unordered_map<std::string_view, RegisterRange> ranges;
    std::vector<Reference> references;

    // Returns the range that a name belongs to, or null.
    const RegisterRange *range_of(std::string_view name) const;
};

// A register of the module that a function uses, and the register of the function that has its
// value. A vector has a pair for each component.
struct SharedRegister {
    int of_module, of_function;
};

class Names {
  public:
    Names() { blocks_.emplace_back(); }

    size_t depth() const { return blocks_.size(); }
    void open() { blocks_.emplace_back(); }
    Block close();
    Block &innermost() { return blocks_.back(); }
    Block &module() { return blocks_.front(); }

    // Adds a name to the innermost block. Returns false if the block already has this name.
    bool define(std::string_view name, Symbol symbol);
    bool define_range(std::string_view prefix, RegisterRange range);

    // Finds a name in the open blocks, from the innermost to the outermost. If the name belongs to
    // a range of registers, creates the register: adds its name to the block of the range and its
    // components to `registers`. If the name is that of a register of the module, returns the
    // register that the open function has for it.
    const Symbol *find(std::string_view name, std::vector<Register> &registers);

    std::vector<Register> &module_registers() { return module_registers_; }
    // Returns the registers of the module that were found since the last call.
    std::vector<SharedRegister> take_shared();

  private:
    const Symbol *share(std::string_view name, const Symbol &symbol,
                        std::vector<Register> &registers);

    std::vector<Block> blocks_;
    std::vector<Register> module_registers_;
    std::vector<SharedRegister> shared_;
};

// Adds the registers for a name and returns the index of the first one. A vector register has
// `width` components, whose names end in .x, .y and so on.
int add_registers(std::vector<Register> &registers, std::string_view name, Type type, int width);

} // namespace soft::ptx
