#include "check/control_flow.h"

namespace soft::check {

namespace {

// Calls `visit` with the index of each step that may run next after this one. May also call it with
// others.
template <class Visit> void successors(const ptx::Code &code, size_t index, Visit visit) {
    using Kind = ptx::Effect::Kind;
    const ptx::Step &step = code.body[index];
    Kind kind = code.effects[index].kind;
    bool ends = kind == Kind::Return || kind == Kind::Exit;
    if (step.is_branch)
        visit(step.place);
    if (code.written[index].compare(0, 3, "brx") == 0 && step.place < code.branch_tables.size())
        for (uint32_t target : code.branch_tables[step.place])
            visit(target);
    if ((step.guarded || !(ends || step.is_branch)) && index + 1 < code.body.size())
        visit(index + 1);
}

} // namespace

bool ControlFlow::leads_to(size_t from, size_t to) {
    auto [known, is_new] = after_.try_emplace(from);
    std::vector<bool> &after = known->second;
    if (!is_new)
        return after[to];
    after.resize(code_.body.size());
    std::vector<size_t> left = {from};
    while (!left.empty()) {
        size_t index = left.back();
        left.pop_back();
        successors(code_, index, [&](size_t next) {
            if (!after[next])
                left.push_back(next);
            after[next] = true;
        });
    }
    return after[to];
}

} // namespace soft::check
