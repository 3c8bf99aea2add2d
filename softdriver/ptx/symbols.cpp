#include "ptx/symbols.h"

#include <algorithm>
#include <utility>

namespace soft::ptx {

namespace {
constexpr size_t most_digits = 10;
}

const RegisterRange *Block::range_of(std::string_view name) const {
    uint64_t number = 0, scale = 1;
    size_t digits = 0;
    while (!ranges.empty() && digits < most_digits && digits + 1 < name.size()) {
        char digit = name[name.size() - ++digits];
        if (digit < '0' || digit > '9')
            break;
        number += scale * uint64_t(digit - '0');
        scale *= 10;
        if (digit == '0' && digits > 1)
            continue; // %r012 has a leading zero, so it does not belong to %r<100>
        auto found = ranges.find(name.substr(0, name.size() - digits));
        if (found != ranges.end() && number < found->second.count)
            return &found->second;
    }
    return nullptr;
}

Block Names::close() {
    Block block = std::move(blocks_.back());
    blocks_.pop_back();
    return block;
}

bool Names::define(std::string_view name, Symbol symbol) {
    Block &block = innermost();
    return !block.range_of(name) && block.symbols.emplace(name, symbol).second;
}

bool Names::define_range(std::string_view prefix, RegisterRange range) {
    return innermost().ranges.emplace(prefix, range).second;
}

const Symbol *Names::find(std::string_view name, std::vector<Register> &registers) {
    for (size_t i = blocks_.size(); i-- > 0;) {
        Block &block = blocks_[i];
        auto found = block.symbols.find(name);
        if (found == block.symbols.end()) {
            const RegisterRange *range = block.range_of(name);
            if (!range)
                continue;
            Symbol symbol;
            symbol.width = range->width;
            symbol.index =
                add_registers(i ? registers : module_registers_, name, range->type, range->width);
            found = block.symbols.emplace(name, symbol).first;
        }
        bool of_module = i == 0 && depth() > 1 && found->second.kind == Symbol::Kind::Register;
        return of_module ? share(name, found->second, registers) : &found->second;
    }
    return nullptr;
}

// Creates the register of the open function for a register of the module. From now on, the
// outermost block of the function has the name.
const Symbol *Names::share(std::string_view name, const Symbol &symbol,
                           std::vector<Register> &registers) {
    Symbol own = symbol;
    own.index = int(registers.size());
    for (int i = 0; i < symbol.width; i++) {
        shared_.push_back({symbol.index + i, own.index + i});
        registers.push_back(module_registers_[size_t(symbol.index + i)]);
    }
    return &blocks_[1].symbols.emplace(name, own).first->second;
}

std::vector<SharedRegister> Names::take_shared() { return std::exchange(shared_, {}); }

int add_registers(std::vector<Register> &registers, std::string_view name, Type type, int width) {
    int first = int(registers.size());
    for (int i = 0; i < width; i++) {
        std::string component = width > 1 ? std::string(".") + "xyzw"[i] : "";
        registers.push_back({std::string(name) + component, type});
    }
    return first;
}

} // namespace soft::ptx
