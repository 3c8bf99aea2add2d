#include "ptx/decoder.h"
#include "ptx/families.h"
#include "ptx/lanes.h"
#include "ptx/machine.h"

// This file decodes and runs branches, calls, returns and exits.

namespace soft::ptx {

namespace {

void branch(Warp &warp, const Step &step) {
    warp.split(warp.frame->code->body.data() + step.place);
}

// Returns the lanes in `lanes` that have the same value as the first of these lanes.
template <class T> uint32_t with_same(const T *values, uint32_t lanes) {
    T first = values[__builtin_ctz(lanes)];
    uint32_t same = 0;
    for (uint32_t left = lanes; left; left &= left - 1)
        if (values[__builtin_ctz(left)] == first)
            same |= left & -left;
    return same;
}

void branch_indexed(Warp &warp, const Step &step) {
    const Code &code = *warp.frame->code;
    const std::vector<uint32_t> &table = code.branch_tables[step.place];
    const uint32_t *indices = warp.row<uint32_t>(step.rows[0]);
    for (uint32_t left = warp.active; left;) {
        unsigned lane = unsigned(__builtin_ctz(left));
        if (indices[lane] >= table.size())
            return warp.machine.fail(warp, step, lane, CUDA_ERROR_ILLEGAL_INSTRUCTION,
                                     "index " + std::to_string(indices[lane]) + " of a list of " +
                                         std::to_string(table.size()) + " labels");
        uint32_t same = with_same(indices, left);
        left &= ~same;
        warp.send(code.body.data() + table[indices[lane]], same);
    }
}

void leave(Warp &warp, const Step &) { warp.leave(); }
void end_thread(Warp &warp, const Step &) { warp.exit(); }

void trap(Warp &warp, const Step &step) {
    warp.machine.fail(warp, step, warp.lane_of_fault(), CUDA_ERROR_LAUNCH_FAILED,
                      "the kernel gave up");
}

void call_function(Warp &warp, const Step &step) {
    const Call &call = warp.frame->code->calls[step.place];
    warp.enter(step, *call.callee, call);
}

// Calls the function to which the first lane's pointer points, in all lanes with this pointer. The
// other lanes run the instruction again later.
void call_indirect(Warp &warp, const Step &step) {
    const Call &call = warp.frame->code->calls[step.place];
    const uint64_t *pointers = warp.row<uint64_t>(call.pointer);
    uint64_t pointer = pointers[__builtin_ctz(warp.active)];
    uint32_t same = with_same(pointers, warp.active);
    const Code *callee = nullptr;
    for (auto &code : warp.machine.library.codes)
        if (code && !code->entry && pointer == function_address(size_t(code->index)))
            callee = code.get();
    if (!callee)
        return warp.machine.fail(warp, step, warp.lane_of_fault(), CUDA_ERROR_ILLEGAL_ADDRESS,
                                 "the pointer does not point to a function");
    if (callee->results.size() != call.results.size() ||
        callee->parameters.size() != call.arguments.size())
        return warp.machine.fail(warp, step, warp.lane_of_fault(), CUDA_ERROR_ILLEGAL_INSTRUCTION,
                                 "function '" + callee->name + "' has different parameters");
    if (warp.active != same)
        warp.send(&step, warp.active & ~same);
    warp.active = same;
    warp.enter(step, *callee, call);
}

void decode_branch(Decoder &decoder) {
    decoder.take("uni");
    decoder.expect_operands(1);
    if (decoder.operand(0).kind != Operand::Kind::Label)
        decoder.refuse("a label is needed");
    decoder.step.is_branch = true;
    decoder.step.place = uint32_t(decoder.operand(0).index);
    decoder.emit(branch);
}

void decode_branch_indexed(Decoder &decoder) {
    decoder.take("uni");
    if (!decoder.take("idx"))
        decoder.refuse("only brx.idx is supported");
    decoder.expect_operands(2);
    decoder.step.rows[0] = decoder.source(decoder.operand(0), Type::U32);
    std::vector<uint32_t> table;
    for (const Operand &label : decoder.operand(1).parts) {
        if (label.kind != Operand::Kind::Label)
            decoder.refuse("a list of labels is needed");
        table.push_back(uint32_t(label.index));
    }
    decoder.step.place = uint32_t(decoder.code().branch_tables.size());
    decoder.code().branch_tables.push_back(table);
    decoder.emit(branch_indexed);
}

template <Handler handler, Effect::Kind kind = Effect::Kind::None> void simple(Decoder &decoder) {
    decoder.take("uni");
    decoder.expect_operands(0);
    decoder.effect.kind = kind;
    decoder.emit(handler);
}

// Returns the copy of one argument or result of a call. One end of the copy is the caller's local
// memory or row, and the other end is the place in the callee's local memory.
Transfer transfer_of(Decoder &decoder, const Operand &own, const Place &callees, bool is_result) {
    Transfer part;
    part.bytes = callees.bytes;
    part.predicate = callees.is_predicate;
    uint32_t place = 0;
    bool row = true;
    const Variable *variable = decoder.named(own);
    if (variable) {
        if (variable->space != Space::Param || variable->bytes() < part.bytes || part.predicate)
            decoder.refuse("'" + variable->name + "' cannot be passed for this parameter");
        place = decoder.local_offset(own.index);
        row = false;
    } else {
        Type type = part.predicate    ? Type::Pred
                    : part.bytes == 8 ? Type::B64
                    : part.bytes == 4 ? Type::B32
                                      : Type::B16;
        if (part.bytes != 2 && part.bytes != 4 && part.bytes != 8)
            decoder.refuse("a parameter of this size must be passed in memory");
        place = is_result ? decoder.destination(own, type) : decoder.source(own, type);
    }
    (is_result ? part.to : part.from) = place;
    (is_result ? part.to_row : part.from_row) = row;
    (is_result ? part.from : part.to) = callees.offset;
    return part;
}

// Returns the copies of all arguments, or all results, of a call. Vectors are copied item by item.
std::vector<Transfer> transfers(Decoder &decoder, const Operand *list, const Places &callees,
                                bool results) {
    std::vector<Transfer> made;
    size_t count = list ? list->parts.size() : 0;
    if (count != callees.size())
        decoder.refuse(std::to_string(count) + (results ? " results" : " arguments") + " where " +
                       std::to_string(callees.size()) + " are needed");
    for (size_t i = 0; i < count; i++) {
        const Operand &own = list->parts[i];
        if (own.kind != Operand::Kind::Vector) {
            made.push_back(transfer_of(decoder, own, callees[i], results));
            continue;
        }
        Place item = callees[i];
        item.bytes /= uint32_t(own.parts.size());
        for (const Operand &part : own.parts) {
            made.push_back(transfer_of(decoder, part, item, results));
            item.offset += item.bytes;
        }
        if (item.offset != callees[i].offset + callees[i].bytes)
            decoder.refuse("a vector of " + std::to_string(own.parts.size()) +
                           " cannot be passed for this parameter");
    }
    return made;
}

// Refuses calls with parameters that the ABI does not have, as NVIDIA's compiler does.
void check_parameters(Decoder &decoder, const Function &function) {
    if (decoder.tree().without_abi)
        return;
    for (const Function::InRegister &each : function.in_registers) {
        const Variable &variable = function.variables[size_t(each.variable)];
        bool narrow = variable.type == Type::U16 || variable.type == Type::S16;
        if (narrow && variable.count == 1)
            decoder.refuse("'" + function.name +
                           "' has parameters in predicates or in registers of 8 or 16 bits, which "
                           "a GPU allows only in modules that leave the ABI: those with a function "
                           "that has several results, or with registers or local memory outside "
                           "of functions");
    }
}

void decode_call(Decoder &decoder) {
    decoder.take("uni");
    size_t next = 0;
    auto list = [&]() -> const Operand * {
        bool there =
            next < decoder.operands() && decoder.operand(next).kind == Operand::Kind::Vector;
        return there ? &decoder.operand(next++) : nullptr;
    };
    const Operand *results = list();
    if (next >= decoder.operands())
        decoder.refuse("the callee is missing");
    const Operand &callee = decoder.operand(next++);
    const Operand *arguments = list();
    Call call;
    Places result_places, parameter_places;
    if (callee.kind == Operand::Kind::Function) {
        const Function &function = decoder.tree().functions.at(size_t(callee.index));
        if (function.entry)
            decoder.refuse("'" + function.name + "' is a kernel");
        check_parameters(decoder, function);
        places_of(function, result_places, parameter_places);
        call.callee = decoder.decoding().library.codes[size_t(callee.index)].get();
        if (!call.callee)
            return decode_provided_call(decoder, function, results, arguments);
    } else {
        call.pointer = decoder.source(callee, Type::U64);
        if (next >= decoder.operands())
            decoder.refuse("an indirect call without a prototype");
        const Operand &shape = decoder.operand(next++);
        if (shape.kind == Operand::Kind::Integer)
            places_of(decoder.function().prototypes.at(size_t(shape.bits)), result_places,
                      parameter_places);
        else if (!shape.parts.empty())
            places_of(decoder.tree().functions.at(size_t(shape.parts[0].index)), result_places,
                      parameter_places);
    }
    call.results = transfers(decoder, results, result_places, true);
    call.arguments = transfers(decoder, arguments, parameter_places, false);
    decoder.step.place = uint32_t(decoder.code().calls.size());
    decoder.code().calls.push_back(call);
    decoder.emit(call.callee ? call_function : call_indirect);
}

} // namespace

void add_control(Opcodes &opcodes) {
    opcodes["bra"] = decode_branch;
    opcodes["brx"] = decode_branch_indexed;
    opcodes["call"] = decode_call;
    opcodes["ret"] = simple<leave, Effect::Kind::Return>;
    opcodes["exit"] = simple<end_thread, Effect::Kind::Exit>;
    opcodes["trap"] = simple<trap>;
    opcodes["brkpt"] = simple<nothing>;
}

} // namespace soft::ptx
