#pragma once

#include "ptx/ast.h"

#include <string_view>
#include <unordered_map>
#include <vector>

namespace soft::ptx {

// What a name stands for.
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
    Operand::Scope scope = Operand::Scope::Module; // for a variable: where it is declared
    int width = 1; // for a register: the number of components, which begin at `index`
    int index = 0;
};

// The registers that a declaration such as `%r<100>` names. Each is created when it is first used.
struct RegisterRange {
    Type type = Type::None;
    int width = 1;
    uint64_t count = 0;
};

// A use of a name that may be defined later, in the same block or in an outer one.
struct Reference {
    size_t instruction, operand;
    int part; // the name is the operand itself (-1), or parts[part] of it: see Operand
    int line;
};

// One scope: the names that are declared between a pair of braces. The outermost is the module.
struct Block {
    std::unordered_map<std::string_view, Symbol> symbols;
    std::unordered_map<std::string_view, RegisterRange> ranges;
    std::vector<Reference> references;

    // Returns the range to which a name belongs, or null.
    const RegisterRange *range_of(std::string_view name) const;
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

    // Finds a name in all open blocks, the innermost first. A register of a range is created: its
    // name is added to the block that has the range, and its registers to `registers`.
    const Symbol *find(std::string_view name, std::vector<Register> &registers);

  private:
    std::vector<Block> blocks_;
};

// Adds `width` registers and returns the index of the first one. The registers of a vector are
// named after the vector.
int add_registers(std::vector<Register> &registers, std::string_view name, Type type, int width);

} // namespace soft::ptx
