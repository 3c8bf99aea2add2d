#include "ptx/call_graph.h"

#include <algorithm>

namespace soft::ptx {

namespace {

void note_variables(const Operand &operand, std::vector<int> &variables) {
    if (operand.kind == Operand::Kind::Variable && operand.scope == Operand::Scope::Module)
        variables.push_back(operand.index);
    for (const Operand &part : operand.parts)
        note_variables(part, variables);
}

void make_set(std::vector<int> &numbers) {
    std::sort(numbers.begin(), numbers.end());
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

// Tarjan's algorithm, which finds the cycles of a call graph. The implementation is not recursive,
// because a module may have very long chains of calls.
class Circles {
  public:
    Circles(const Tree &tree, const std::vector<size_t> &own)
        : tree_(tree), own_(own), places_(tree.functions.size()), totals_(tree.functions.size()) {}

    std::vector<size_t> totals() {
        for (size_t i = 0; i < places_.size(); i++)
            if (!places_[i].number)
                walk(int(i));
        return std::move(totals_);
    }

  private:
    struct Place {
        size_t number = 0; // counts visited functions from 1; 0 if not visited yet
        size_t lowest = 0; // lowest `number` of an open function that this function can reach
        size_t next_call = 0;
        bool open = false;
    };

    Place &of(int function) { return places_[size_t(function)]; }

    void enter(int function) {
        of(function).number = of(function).lowest = ++met_;
        of(function).open = true;
        path_.push_back(function);
        open_.push_back(function);
    }

    void walk(int from) {
        enter(from);
        while (!path_.empty()) {
            int function = path_.back();
            const std::vector<int> &calls = tree_.functions[size_t(function)].calls;
            Place &place = of(function);
            if (place.next_call < calls.size()) {
                int callee = calls[place.next_call++];
                if (!of(callee).number)
                    enter(callee);
                else if (of(callee).open)
                    place.lowest = std::min(place.lowest, of(callee).number);
                continue;
            }
            path_.pop_back();
            if (!path_.empty())
                of(path_.back()).lowest = std::min(of(path_.back()).lowest, place.lowest);
            if (place.lowest == place.number)
                close(function);
        }
    }

    // Closes the functions that were opened since `first`, which form a cycle. The totals of all
    // callees outside the cycle are known already.
    void close(int first) {
        auto begin = std::find(open_.rbegin(), open_.rend(), first).base() - 1;
        std::vector<int> circle(begin, open_.end());
        open_.erase(begin, open_.end());
        size_t sum = 0, below = 0;
        for (int function : circle) {
            sum += own_[size_t(function)];
            for (int callee : tree_.functions[size_t(function)].calls)
                below = std::max(below, totals_[size_t(callee)]);
        }
        for (int function : circle) {
            of(function).open = false;
            totals_[size_t(function)] = sum + below;
        }
    }

    const Tree &tree_;
    const std::vector<size_t> &own_;
    std::vector<Place> places_;
    std::vector<size_t> totals_;
    std::vector<int> path_, open_;
    size_t met_ = 0;
};

} // namespace

CallGraph::CallGraph(const Tree &tree)
    : tree_(tree), variables_(tree.functions.size()), calls_pointers_(tree.functions.size()) {
    for (size_t i = 0; i < tree.functions.size(); i++) {
        for (const Instruction &instruction : tree.functions[i].body) {
            for (const Operand &operand : instruction.operands)
                note_variables(operand, variables_[i]);
            if (instruction.opcode == "call" && instruction.operands.size() > 1 &&
                instruction.operands[1].kind == Operand::Kind::Register)
                calls_pointers_[i] = true;
        }
        make_set(variables_[i]);
    }
}

std::vector<int> CallGraph::reachable(int from) const {
    std::vector<int> found{from};
    std::vector<bool> seen(tree_.functions.size());
    seen[size_t(from)] = true;
    auto add = [&](int function) {
        if (!seen[size_t(function)])
            found.push_back(function);
        seen[size_t(function)] = true;
    };
    bool all = false;
    for (size_t i = 0; i < found.size(); i++) {
        for (int callee : tree_.functions[size_t(found[i])].calls)
            add(callee);
        if (!calls_pointers_[size_t(found[i])] || all)
            continue;
        all = true;
        for (size_t other = 0; other < tree_.functions.size(); other++)
            if (!tree_.functions[other].entry)
                add(int(other));
    }
    return found;
}

std::vector<int> CallGraph::variables(const std::vector<int> &functions) const {
    std::vector<int> all;
    for (int function : functions) {
        const std::vector<int> &some = variables_[size_t(function)];
        all.insert(all.end(), some.begin(), some.end());
    }
    make_set(all);
    return all;
}

std::vector<size_t> CallGraph::deepest(const std::vector<size_t> &own) const {
    return Circles(tree_, own).totals();
}

} // namespace soft::ptx
