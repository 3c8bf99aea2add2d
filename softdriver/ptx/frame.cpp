#include "base/range.h"
#include "ptx/machine.h"
#include "ptx/observer.h"
#include "ptx/special.h"

#include <algorithm>
#include <cstring>

// This file creates the registers and the local memory of each function call.

namespace soft::ptx {

namespace {

constexpr size_t row_alignment = 64;
constexpr unsigned deepest_call = 1024;

} // namespace

void Warp::start(unsigned number_in_block, uint32_t lanes) {
    number = number_in_block;
    live = lanes;
    waited = false;
    waiting_.clear();
    mask = active = 0;
    frame = nullptr;
    idle_.resize(machine.library.codes.size());
    last_.resize(machine.library.sites);
    Frame *root = make_frame(machine.code, nullptr, nullptr, lanes);
    wait({root, root->code->body.data(), lanes, Group::Wait::None, 0, 0});
    turn_ = turns_ = 0;
}

Frame *Warp::make_frame(const Code &code, Frame *caller, const Step *call, uint32_t lanes) {
    std::vector<Frame *> &idle = idle_[size_t(code.index)];
    Frame *made;
    if (idle.empty()) {
        frames_.push_back(std::make_unique<Frame>());
        made = frames_.back().get();
        made->code = &code;
        made->memory = std::make_unique<char[]>(code.frame_bytes + row_alignment);
        auto address = reinterpret_cast<uintptr_t>(made->memory.get());
        made->rows = made->memory.get() + (row_alignment - address % row_alignment);
        memset(made->rows, fresh_byte, code.frame_bytes);
        fill(*made, code.constants);
    } else {
        made = idle.back();
        idle.pop_back();
    }
    made->caller = caller;
    made->call = call;
    made->lanes = lanes;
    made->depth = caller ? caller->depth + 1 : 0;
    made->local_begin = caller ? local_end(*caller, lanes) : machine.library.local_bytes;
    make_room(made->local_begin + code.local_bytes);
    refill(*made);
    if (machine.observer)
        machine.observer->calls(*this, *made);
    return made;
}

// Returns where the local memory of a function called by these lanes begins: after all local memory
// that these lanes use in the caller. After alloca the lanes may use different amounts.
uint64_t Warp::local_end(const Frame &of, uint32_t lanes) const {
    uint64_t end = of.local_begin + of.code->local_bytes;
    if (of.code->stack_pointer == Code::no_row)
        return end;
    auto *tops = reinterpret_cast<const uint64_t *>(of.rows + of.code->stack_pointer);
    for (uint32_t left = lanes; left; left &= left - 1)
        end = std::max(end, tops[__builtin_ctz(left)]);
    return round_up(end, 16);
}

void Warp::make_room(size_t bytes) {
    if (bytes <= local_stride_) {
        local_bytes_ = std::max(local_bytes_, bytes);
        return;
    }
    // Give each lane an odd number of cache lines. Equal offsets of different lanes then use
    // different cache sets.
    size_t stride = ((bytes + local_bytes_ / 2 + 63) / 64 | 1) * 64;
    std::vector<char> wider(stride * warp_size, fresh_byte);
    for (size_t lane = 0; lane < warp_size && local_bytes_; lane++)
        memcpy(&wider[lane * stride], &local_[lane * local_stride_], local_bytes_);
    local_ = std::move(wider);
    local_stride_ = stride;
    local_bytes_ = bytes;
}

uint64_t Warp::value_of(const Filling &filling, const Frame &at, unsigned lane) const {
    uint64_t window = 0, value = filling.value;
    switch (filling.kind) {
    case Filling::Kind::Value:
        return value;
    case Filling::Kind::Special:
        return filling.special->value(machine, *this, lane);
    case Filling::Kind::Variable:
        value = machine.launch.variables.at(value);
        break;
    case Filling::Kind::Shared:
        value = machine.code.shared_offsets.at(value);
        window = shared_window;
        break;
    case Filling::Kind::Local:
        value += at.local_begin;
        window = local_window;
        break;
    case Filling::Kind::Parameter:
        window = parameter_window;
        break;
    case Filling::Kind::Argument:
        memcpy(&value, &machine.launch.parameters.at(filling.value), filling.width);
        return filling.width < 8 ? value & ((uint64_t{1} << 8 * filling.width) - 1) : value;
    }
    return value + uint64_t(filling.addend) + (filling.generic ? window : 0);
}

void Warp::fill(const Frame &at, const std::vector<Filling> &fillings) {
    for (const Filling &filling : fillings) {
        char *row = at.rows + filling.row;
        bool each = filling.kind == Filling::Kind::Special && !filling.special->of_block;
        uint64_t value = value_of(filling, at, 0);
        if (filling.width == 0) // the row is a mask of predicates
            memset(row, value ? 0xff : 0, sizeof(uint32_t));
        for (unsigned lane = 0; lane < warp_size && filling.width; lane++) {
            if (each)
                value = value_of(filling, at, lane);
            memcpy(row + lane * filling.width, &value, filling.width);
        }
    }
}

// Fills the rows whose values depend on the call. In each such row all lanes have the same value.
void Warp::refill(const Frame &at) {
    for (const Filling &filling : at.code->fresh) {
        uint64_t value = value_of(filling, at, 0);
        char *row = at.rows + filling.row;
        if (filling.width == 4)
            std::fill_n(reinterpret_cast<uint32_t *>(row), warp_size, uint32_t(value));
        else if (filling.width == 8)
            std::fill_n(reinterpret_cast<uint64_t *>(row), warp_size, value);
        else if (filling.width == 2)
            std::fill_n(reinterpret_cast<uint16_t *>(row), warp_size, uint16_t(value));
        else
            memset(row, value ? 0xff : 0, sizeof(uint32_t)); // the row is a mask of predicates
    }
}

void Warp::drop_lanes(Frame *from, uint32_t lanes) {
    from->lanes &= ~lanes;
    if (!from->lanes)
        idle_[size_t(from->code->index)].push_back(from);
}

void Warp::enter(const Step &step, const Code &code, const Call &call) {
    uint64_t end = local_end(*frame, active) + code.local_bytes;
    if (frame->depth + 1 >= deepest_call || end > most_local_bytes) {
        machine.fail(*this, step, lane_of_fault(), CUDA_ERROR_ILLEGAL_ADDRESS,
                     "calls nest too deeply: the stack overflows");
        return;
    }
    Frame *made = make_frame(code, frame, &step, active);
    transfer(*frame, *made, call.arguments);
    if (mask & ~active)
        wait({frame, next, mask & ~active, Group::Wait::None, 0, turn_});
    wait({made, code.body.data(), active, Group::Wait::None, 0, turn_});
    mask = 0;
    interrupt();
}

void Warp::leave() {
    Frame *caller = frame->caller;
    if (!caller)
        return exit();
    transfer(*frame, *caller, caller->code->calls[frame->call->place].results);
    wait({caller, frame->call + 1, active, Group::Wait::None, 0, turn_});
    drop_lanes(frame, active);
    mask &= ~active;
    interrupt();
}

void Warp::exit() {
    for (Frame *left = frame; left;) {
        Frame *caller = left->caller;
        drop_lanes(left, active);
        left = caller;
    }
    live &= ~active;
    mask &= ~active;
    interrupt();
    block.threads_ended(unsigned(__builtin_popcount(active)));
}

// Copies a predicate between its bit in a row and a number in local memory.
void Warp::transfer_predicate(const Frame &from, const Frame &to, const Transfer &part) {
    for (uint32_t left = active; left; left &= left - 1) {
        unsigned lane = unsigned(__builtin_ctz(left));
        if (part.from_row) {
            auto *mask = reinterpret_cast<const uint32_t *>(from.rows + part.from);
            uint16_t number = *mask >> lane & 1;
            memcpy(local(lane) + to.local_begin + part.to, &number, sizeof number);
        } else {
            auto *mask = reinterpret_cast<uint32_t *>(to.rows + part.to);
            uint16_t number;
            memcpy(&number, local(lane) + from.local_begin + part.from, sizeof number);
            *mask = (*mask & ~(1u << lane)) | uint32_t(number != 0) << lane;
        }
    }
}

void Warp::transfer(const Frame &from, const Frame &to, const std::vector<Transfer> &transfers) {
    for (const Transfer &part : transfers) {
        if (part.predicate) {
            transfer_predicate(from, to, part);
            continue;
        }
        for (uint32_t left = active; left; left &= left - 1) {
            unsigned lane = unsigned(__builtin_ctz(left));
            const char *source = part.from_row ? from.rows + part.from + lane * part.bytes
                                               : local(lane) + from.local_begin + part.from;
            char *target = part.to_row ? to.rows + part.to + lane * part.bytes
                                       : local(lane) + to.local_begin + part.to;
            memcpy(target, source, part.bytes);
        }
    }
    if (machine.observer)
        machine.observer->passes(*this, from, to, transfers);
}

} // namespace soft::ptx
