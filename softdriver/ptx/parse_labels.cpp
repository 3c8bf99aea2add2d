#include "ptx/parsing.h"

namespace soft::ptx {

namespace {

// Resolves the labels and lists of a block: replaces their names in instructions by their contents.
class Resolution {
  public:
    Resolution(Parsing &parsing, Function &function)
        : parsing_(parsing), function_(function), block_(parsing.names.close()) {}

    void resolve() {
        // This loop also resolves references that give_list() appends while it runs.
        for (size_t i = 0; i < block_.references.size(); i++) {
            const Reference reference = block_.references[i];
            Operand &operand = at(reference);
            auto found = block_.symbols.find(operand.name);
            if (found != block_.symbols.end())
                give(reference, operand, found->second);
            else if (parsing_.names.depth() > 1)
                parsing_.names.innermost().references.push_back(reference);
            else
                parsing_.reader.report(reference.line, "unknown symbol " + quoted(operand.name));
        }
    }

  private:
    Operand &at(const Reference &reference) {
        Operand &operand = function_.body[reference.instruction].operands[reference.operand];
        return reference.part < 0 ? operand : operand.parts[size_t(reference.part)];
    }

    void give(const Reference &reference, Operand &operand, const Symbol &symbol) {
        if (symbol.kind == Symbol::Kind::Label) {
            operand.index = symbol.index;
        } else if (symbol.kind == Symbol::Kind::Prototype) {
            operand.kind = Operand::Kind::Integer;
            operand.bits = uint64_t(symbol.index);
        } else if (symbol.kind == Symbol::Kind::List && reference.part < 0) {
            give_list(reference, operand, parsing_.lists[size_t(symbol.index)]);
        } else {
            parsing_.reader.report(reference.line, quoted(operand.name) + " is not a label");
        }
    }

    void give_list(const Reference &reference, Operand &operand, const NameList &list) {
        // Limit the used memory, because a short text can use a long list many times.
        parsing_.spend(list.members.size() * sizeof(Operand));
        operand.kind = Operand::Kind::Vector;
        operand.parts = list.members;
        for (size_t i = 0; i < list.members.size(); i++)
            if (list.members[i].kind == Operand::Kind::Label)
                block_.references.push_back(
                    {reference.instruction, reference.operand, int(i), list.line});
            else
                note_call(parsing_, function_, list.members[i].index);
    }

    Parsing &parsing_;
    Function &function_;
    Block block_;
};

} // namespace

void note_call(Parsing &parsing, Function &function, int callee) {
    int &last = parsing.callers[size_t(callee)];
    if (last == parsing.current && last >= 0)
        return;
    last = parsing.current;
    function.calls.push_back(callee);
}

void close_block(Parsing &parsing, Function &function) { Resolution(parsing, function).resolve(); }

} // namespace soft::ptx
