#include "ptx/link.h"

#include "ptx/families.h"

#include <algorithm>
#include <map>
#include <set>

namespace soft::ptx {
namespace {

bool defines(const Variable &variable) { return !variable.external; }
bool defines(const Function &function) { return function.defined; }
bool seen_outside(const Variable &variable) {
    return variable.visible || variable.weak || variable.common;
}
bool seen_outside(const Function &function) { return function.visible || function.weak; }
bool may_repeat(const Variable &variable) { return variable.weak || variable.common; }
bool may_repeat(const Function &function) { return function.weak; }

// Merges the variables (or the functions) of all trees into one list.
template <class Item> class Merge {
  public:
    explicit Merge(std::vector<Problem> &problems) : problems_(problems) {}

    void take_definitions(const std::vector<Item> &from) {
        std::vector<int> &places = places_.emplace_back(from.size(), -1);
        for (size_t i = 0; i < from.size(); i++)
            if (defines(from[i]))
                places[i] = define(from[i]);
    }

    // Call this after take_definitions() for all trees.
    void take_declarations(const std::vector<Item> &from, size_t tree) {
        for (size_t i = 0; i < from.size(); i++)
            if (!defines(from[i])) {
                auto [known, is_new] = names_.try_emplace(from[i].name, int(items.size()));
                if (is_new)
                    items.push_back(from[i]);
                places_[tree][i] = known->second;
            }
    }

    int place(size_t tree, int index) const { return places_[tree].at(index); }
    // Returns true if the merged list has this tree's definition of the item. The list may have
    // another tree's definition instead.
    bool owns(size_t tree, size_t index, const std::vector<Item> &from) const {
        return defines(from[index]) && owner_[places_[tree][index]] == tree;
    }

    std::vector<Item> items;

  private:
    int define(const Item &item) {
        int place = int(items.size());
        if (seen_outside(item)) {
            auto [known, is_new] = names_.try_emplace(item.name, place);
            if (!is_new && !may_repeat(item) && !may_repeat(items[known->second]))
                problems_.push_back({item.line, item.name + " is defined more than once"});
            if (!is_new)
                return known->second;
        }
        items.push_back(item);
        owner_.resize(items.size());
        owner_[place] = places_.size() - 1;
        return place;
    }

    std::vector<Problem> &problems_;
    std::map<std::string, int> names_;
    // The index in `items` of each item, by the item's tree and its index in this tree.
    std::vector<std::vector<int>> places_;
    std::vector<size_t> owner_; // for each definition in `items`, the tree that it comes from
};

// Replaces indices of variables and functions in one tree by indices in the merged tree.
class Renumber {
  public:
    Renumber(const Merge<Variable> &variables, const Merge<Function> &functions, size_t tree)
        : variables_(variables), functions_(functions), tree_(tree) {}

    void apply(Variable &variable) const {
        for (Variable::Address &address : variable.addresses)
            address.target = address.function ? functions_.place(tree_, address.target)
                                              : variables_.place(tree_, address.target);
    }

    void apply(Function &function) const {
        for (Instruction &instruction : function.body)
            for (Operand &operand : instruction.operands)
                apply(operand);
        for (int &called : function.calls)
            called = functions_.place(tree_, called);
    }

  private:
    void apply(Operand &operand) const {
        if (operand.kind == Operand::Kind::Function)
            operand.index = functions_.place(tree_, operand.index);
        else if (operand.kind == Operand::Kind::Variable && operand.scope == Operand::Scope::Module)
            operand.index = variables_.place(tree_, operand.index);
        for (Operand &part : operand.parts)
            apply(part);
    }

    const Merge<Variable> &variables_;
    const Merge<Function> &functions_;
    size_t tree_;
};

} // namespace

std::vector<Missing> missing_functions(const std::vector<Tree> &trees) {
    std::set<std::string> defined;
    for (const Tree &tree : trees)
        for (const Function &function : tree.functions)
            if (defines(function) && seen_outside(function))
                defined.insert(function.name);
    std::vector<Missing> missing;
    for (size_t i = 0; i < trees.size(); i++) {
        std::set<std::string> names; // the functions that this module calls, each reported once
        for (const Function &caller : trees[i].functions)
            for (int index : caller.calls) {
                const Function &called = trees[i].functions[size_t(index)];
                if (!defines(called) && !defined.count(called.name) && !is_provided(called.name) &&
                    names.insert(called.name).second)
                    missing.push_back({i, called.name});
            }
    }
    return missing;
}

std::optional<Tree> link(std::vector<Tree> trees, std::vector<Problem> &problems) {
    Merge<Variable> variables(problems);
    Merge<Function> functions(problems);
    for (const Tree &tree : trees) {
        variables.take_definitions(tree.variables);
        functions.take_definitions(tree.functions);
    }
    if (!problems.empty())
        return std::nullopt;
    Tree whole;
    for (size_t i = 0; i < trees.size(); i++) {
        Tree &tree = trees[i];
        variables.take_declarations(tree.variables, i);
        functions.take_declarations(tree.functions, i);
        whole.version = std::max(whole.version, tree.version);
        whole.without_abi |= tree.without_abi;
        if (tree.capability >= whole.capability) {
            whole.capability = tree.capability;
            whole.target = tree.target;
        }
    }
    for (size_t i = 0; i < trees.size(); i++) {
        Renumber renumber(variables, functions, i);
        for (size_t index = 0; index < trees[i].variables.size(); index++)
            if (variables.owns(i, index, trees[i].variables))
                renumber.apply(variables.items[variables.place(i, int(index))]);
        for (size_t index = 0; index < trees[i].functions.size(); index++)
            if (functions.owns(i, index, trees[i].functions))
                renumber.apply(functions.items[functions.place(i, int(index))]);
    }
    if (!trees.empty())
        whole.source_name = trees.front().source_name;
    whole.variables = std::move(variables.items);
    whole.functions = std::move(functions.items);
    return whole;
}

} // namespace soft::ptx
