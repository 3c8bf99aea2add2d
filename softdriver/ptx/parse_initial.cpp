#include "ptx/parsing.h"

#include <algorithm>

namespace soft::ptx {

namespace {

constexpr size_t most_dimensions = 32;         // limit for an array
constexpr size_t most_bytes = size_t{1} << 40; // limit for an array that is declared without a size

class Initial {
  public:
    Initial(Parsing &parsing, Variable &variable, const std::vector<size_t> &dimensions)
        : parsing_(parsing), reader_(parsing.reader), variable_(variable),
          item_(size_of(variable.type)) {
        // For each dimension, compute the number of bytes of one item.
        size_t bytes = item_;
        for (size_t i = dimensions.size(); i-- > 0;) {
            strides_.insert(strides_.begin(), bytes);
            bytes *= dimensions[i];
        }
        open_ = !dimensions.empty() && !dimensions[0];
        end_ = open_ ? most_bytes : variable.bytes();
    }

    void read() {
        items(0);
        if (open_)
            variable_.count = furthest_ / item_;
    }

  private:
    // Reads the items of a dimension, in braces. Below the last dimension, reads a single value.
    void items(size_t level) {
        if (level == strides_.size())
            return value();
        size_t begin = offset_, stride = strides_[level];
        reader_.expect("{");
        do {
            if (offset_ >= end_)
                reader_.fail("too many initial values for " + quoted(variable_.name));
            size_t next = offset_ + stride, outer = end_;
            end_ = std::min(end_, next);
            items(level + 1);
            end_ = outer;
            offset_ = next;
        } while (reader_.accept(","));
        reader_.expect("}");
        furthest_ = std::max(furthest_, offset_);
        offset_ = begin;
    }

    void value() {
        if (reader_.now().kind == Token::Kind::Integer && reader_.after().text == "(")
            masked();
        else if (starts_constant(reader_))
            store(constant());
        else
            address(0);
    }

    uint64_t constant() {
        Constant value = read_constant(reader_);
        bool half = size_of(variable_.type) == 2 && variable_.type >= Type::F16;
        bool is_float = variable_.type == Type::F32 || variable_.type == Type::F64;
        bool may_float = is_float || variable_.type == Type::B32 || variable_.type == Type::B64;
        if (half || variable_.type == Type::F16x2 || variable_.type == Type::BF16x2 ||
            (value.is_float() ? !may_float : is_float))
            reader_.fail("the initial value of " + quoted(variable_.name) + " is of another type");
        return converted(value, variable_.type);
    }

    // Stores a value at the current offset. Zeros are not stored, so that trailing zeros use no
    // memory.
    void store(uint64_t bits) {
        if (!bits)
            return;
        auto &bytes = variable_.initial;
        size_t needed = offset_ + item_;
        if (bytes.size() < needed) {
            parsing_.spend(needed - bytes.size());
            if (bytes.capacity() < needed)
                bytes.reserve(std::max(needed, 2 * bytes.size()));
            bytes.resize(needed);
        }
        for (size_t i = 0; i < item_ && i < sizeof(bits); i++)
            bytes[offset_ + i] = uint8_t(bits >> (8 * i));
    }

    // Reads an initial value that is one byte of an address, such as 0xFF00(name).
    void masked() {
        uint64_t mask = reader_.take().bits;
        unsigned shift = 0;
        while (mask && !(mask & 0xff)) {
            mask >>= 8;
            shift += 8;
        }
        if (mask != 0xff)
            reader_.fail("a mask of an address must be 0xFF, 0xFF00 and so on");
        reader_.expect("(");
        address(shift);
        reader_.expect(")");
    }

    void address(unsigned shift) {
        Variable::Address address;
        address.offset = offset_;
        address.width = item_;
        address.shift = shift;
        if (reader_.now().text == "generic" && reader_.after().text == "(") {
            reader_.take();
            reader_.take();
            address.generic = true;
            name(address);
            reader_.expect(")");
        } else {
            name(address);
        }
        if (reader_.accept("+"))
            address.addend = int64_t(read_integer(reader_));
        variable_.addresses.push_back(address);
    }

    void name(Variable::Address &address) {
        int line = reader_.now().line;
        std::string_view name = reader_.word();
        const Symbol *symbol = parsing_.names.find(name, parsing_.no_registers);
        bool of_module = symbol && symbol->scope == Operand::Scope::Module;
        if (!symbol) {
            if (name != variable_.name) {
                reader_.report(line, "unknown symbol " + quoted(name));
                return;
            }
            // The value is the address of the variable itself.
            address.target = int(parsing_.tree.variables.size());
        } else if (symbol->kind == Symbol::Kind::Function ||
                   (symbol->kind == Symbol::Kind::Variable && of_module)) {
            address.function = symbol->kind == Symbol::Kind::Function;
            address.target = symbol->index;
        } else {
            reader_.report(line, quoted(name) + " has no constant address");
        }
    }

    Parsing &parsing_;
    Reader &reader_;
    Variable &variable_;
    size_t item_;
    std::vector<size_t> strides_;
    bool open_ = false; // true if the number of items decides the size of the first dimension
    size_t offset_ = 0, furthest_ = 0, end_ = 0;
};

} // namespace

void read_initial(Parsing &parsing, Variable &variable, const std::vector<size_t> &dimensions) {
    if (dimensions.size() > most_dimensions)
        parsing.reader.fail("array " + quoted(variable.name) + " has too many dimensions");
    Initial(parsing, variable, dimensions).read();
}

} // namespace soft::ptx
