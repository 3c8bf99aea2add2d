#include "ptx/decoder.h"

#include "base/range.h"
#include "ptx/warp.h"

#include <algorithm>
#include <utility>

namespace soft::ptx {

namespace {

// Devices before sm_20 have no subnormal numbers in single precision. Newer ones run PTX for these
// devices as if all its f32 instructions had .ftz.
constexpr int first_with_subnormals = 20;

struct Refused {
    std::string why;
    bool nowhere = false;
};

// The handler of a step with a guard. Runs the step only in the lanes in which the guard holds.
void guarded(Warp &warp, const Step &step) {
    uint32_t holds = warp.predicate(step.guard);
    warp.active = warp.mask & (step.guard_negated ? ~holds : holds);
    if (warp.active)
        step.guarded(warp, step);
    warp.active = warp.mask;
}

void end_of_function(Warp &warp, const Step &) { warp.leave(); }

} // namespace

Type type_named(std::string_view name) {
    static const std::unordered_map<std::string_view, Type> types = {
        {"pred", Type::Pred}, {"b8", Type::B8},         {"b16", Type::B16}, {"b32", Type::B32},
        {"b64", Type::B64},   {"b128", Type::B128},     {"u8", Type::U8},   {"u16", Type::U16},
        {"u32", Type::U32},   {"u64", Type::U64},       {"s8", Type::S8},   {"s16", Type::S16},
        {"s32", Type::S32},   {"s64", Type::S64},       {"f16", Type::F16}, {"f16x2", Type::F16x2},
        {"bf16", Type::BF16}, {"bf16x2", Type::BF16x2}, {"f32", Type::F32}, {"f64", Type::F64},
    };
    auto found = types.find(name);
    return found == types.end() ? Type::None : found->second;
}

bool is_float(Type type) {
    return type == Type::F16 || type == Type::F16x2 || type == Type::BF16 || type == Type::BF16x2 ||
           type == Type::F32 || type == Type::F64;
}

bool is_signed(Type type) {
    return type == Type::S8 || type == Type::S16 || type == Type::S32 || type == Type::S64;
}

bool is_bits(Type type) {
    return type == Type::B8 || type == Type::B16 || type == Type::B32 || type == Type::B64 ||
           type == Type::B128;
}

std::string written(const Instruction &instruction) {
    std::string text = instruction.opcode;
    for (const std::string &modifier : instruction.modifiers)
        text += "." + modifier;
    return text;
}

std::string Code::where(size_t step) const {
    std::string line = "PTX line " + std::to_string(lines[step]);
    const SourceLine &source = sources[step];
    if (!source.file)
        return line;
    if (source.inner_file) {
        std::string inner = source.inner_file->substr(source.inner_file->rfind('/') + 1);
        line = inner + ":" + std::to_string(source.inner_line) + ", " + line;
    }
    return *source.file + ":" + std::to_string(source.line) + " (" + line + ")";
}

Decoder::Decoder(Decoding &decoding, int function)
    : decoding_(decoding), index_(function), function_(decoding.tree.functions[size_t(function)]),
      code_(*decoding.library.codes[size_t(function)]) {}

void Decoder::decode() {
    try {
        lay_out_registers();
        lay_out_variables();
    } catch (const Refused &refused) {
        decoding_.problems.push_back({function_.line, function_.name + ": " + refused.why});
        return;
    }
    count_definitions();
    for (const Instruction &instruction : function_.body)
        try {
            note_constant(instruction);
        } catch (const Refused &) { // decode_instruction() refuses it again
        }
    for (const Instruction &instruction : function_.body) {
        begins_.push_back(uint32_t(code_.body.size()));
        try {
            decode_instruction(instruction);
        } catch (const Refused &refused) {
            Problem problem = {instruction.line, written(instruction) + ": " + refused.why};
            problem.nowhere = refused.nowhere;
            decoding_.problems.push_back(problem);
        }
    }
    begins_.push_back(uint32_t(code_.body.size()));
    Step end;
    end.run = end_of_function;
    code_.body.push_back(end);
    code_.lines.push_back(function_.body.empty() ? function_.line : function_.body.back().line);
    code_.sources.emplace_back();
    code_.written.push_back("the end of the function");
    code_.effects.emplace_back().kind = Effect::Kind::Return;
    code_.flows.emplace_back();
    resolve_branches();
    code_.frame_bytes = round_up(code_.frame_bytes, 64);
}

void Decoder::decode_instruction(const Instruction &instruction) {
    instruction_ = &instruction;
    taken_.assign(instruction.modifiers.size(), false);
    step = Step();
    results_.clear();
    sources_.clear();
    flushes_ = decoding_.tree.capability < first_with_subnormals && any_left("f32");
    auto found = opcodes().find(instruction.opcode);
    if (found == opcodes().end())
        refuse("not supported by the software driver");
    found->second(*this);
    for (size_t i = 0; i < taken_.size(); i++)
        if (!taken_[i])
            refuse("'." + instruction.modifiers[i] + "' is not supported here");
}

void Decoder::refuse(const std::string &why) const { throw Refused{why}; }

void Decoder::refuse_as_nvidia(const std::string &why) const { throw Refused{why, true}; }

// Replaces indices of instructions in branch targets by indices of steps.
void Decoder::resolve_branches() {
    for (Step &step : code_.body)
        if (step.is_branch)
            step.place = begins_.at(step.place);
    for (auto &table : code_.branch_tables)
        for (uint32_t &target : table)
            target = begins_.at(target);
}

void Decoder::emit(Handler handler) {
    if (!handler)
        refuse_types();
    step.run = handler;
    guard();
    append(step);
}

void Decoder::emit_before(const Step &other) {
    Effect own = std::exchange(effect, {});
    auto results = std::exchange(results_, {}), sources = std::exchange(sources_, {});
    append(other);
    effect = own;
    results_ = results;
    sources_ = sources;
}

void Decoder::append(const Step &appended) {
    code_.body.push_back(appended);
    code_.lines.push_back(instruction_->line);
    code_.sources.push_back(instruction_->source);
    code_.written.push_back(written(*instruction_));
    using Kind = Effect::Kind;
    code_.has_copies |=
        effect.copies || effect.actor != Effect::Actor::Thread ||
        (effect.kind >= Kind::Other && effect.kind <= Kind::Await && effect.kind != Kind::Fence &&
         effect.kind != Kind::Meet && effect.kind != Kind::Barrier);
    code_.effects.push_back(std::exchange(effect, {}));
    code_.flows.push_back(flow());
}

// If an instruction has several steps, each of them has all its registers.
Flow Decoder::flow() {
    Flow made = flow_of(*instruction_);
    made.begin = uint32_t(code_.parts.size());
    made.results = uint8_t(results_.size());
    made.sources = uint8_t(sources_.size());
    code_.parts.insert(code_.parts.end(), results_.begin(), results_.end());
    code_.parts.insert(code_.parts.end(), sources_.begin(), sources_.end());
    return made;
}

void Decoder::guard() {
    if (instruction_->guard < 0)
        return;
    step.guarded = step.run;
    step.run = guarded;
    step.guard = rows_.at(size_t(instruction_->guard));
    step.guard_negated = instruction_->guard_negated;
}

bool Decoder::take(std::string_view modifier) {
    for (size_t i = 0; i < taken_.size(); i++)
        if (!taken_[i] && instruction_->modifiers[i] == modifier)
            return taken_[i] = true;
    return flushes_ && modifier == "ftz";
}

bool Decoder::any_left(std::string_view modifier) const {
    for (size_t i = 0; i < taken_.size(); i++)
        if (!taken_[i] && instruction_->modifiers[i] == modifier)
            return true;
    return flushes_ && modifier == "ftz";
}

int Decoder::take_any(std::initializer_list<std::string_view> modifiers) {
    int which = 0;
    for (std::string_view modifier : modifiers) {
        if (take(modifier))
            return which;
        which++;
    }
    return -1;
}

int Decoder::take_first(std::initializer_list<std::string_view> modifiers) {
    for (size_t i = 0; i < taken_.size(); i++) {
        auto found = std::find(modifiers.begin(), modifiers.end(), instruction_->modifiers[i]);
        if (taken_[i] || found == modifiers.end())
            continue;
        taken_[i] = true;
        return int(found - modifiers.begin());
    }
    return -1;
}

void Decoder::take_all(std::initializer_list<std::string_view> harmless) {
    for (std::string_view modifier : harmless)
        take(modifier);
}

bool Decoder::next_is_type() const {
    for (size_t i = 0; i < taken_.size(); i++)
        if (!taken_[i] && type_named(instruction_->modifiers[i]) != Type::None)
            return true;
    return false;
}

Type Decoder::take_type() {
    for (size_t i = 0; i < taken_.size(); i++) {
        Type type = taken_[i] ? Type::None : type_named(instruction_->modifiers[i]);
        if (type != Type::None) {
            taken_[i] = true;
            return type;
        }
    }
    refuse("a type is missing");
}

void Decoder::expect_operands(size_t least, size_t most) const {
    if (operands() < least || operands() > most)
        refuse(std::to_string(operands()) + " operands where " + std::to_string(least) +
               (most > least ? " to " + std::to_string(most) : "") + " are needed");
}

Effect::Scope take_scope(Decoder &decoder) {
    using Scope = Effect::Scope;
    constexpr Scope scopes[] = {Scope::Block, Scope::Cluster, Scope::Device, Scope::Device,
                                Scope::System};
    int scope = decoder.take_any({"cta", "cluster", "gpu", "gl", "sys"});
    return scope < 0 ? Scope::Device : scopes[scope];
}

} // namespace soft::ptx
