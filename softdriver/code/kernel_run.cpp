#include "code/kernel_run.h"

#include "api/state.h"
#include "base/notes.h"
#include "check/checks.h"
#include "graph/conditional_node.h"
#include "ptx/heap.h"

#include <cstdio>

// Runs kernels in pieces. The memory that a kernel will use is not known beforehand, so each
// allocation is looked up when the kernel first accesses it.

namespace soft {

namespace {

void report_hazard(const Hazards::Key &key, bool benign, const std::function<Hazard()> &make) {
    Lock lock(state().mutex);
    const Settings &settings = state().settings;
    if (!settings.benign || !make)
        return state().hazards.add(key, benign && !settings.benign, settings.hazards, make);
    state().hazards.add(key, false, settings.hazards, [&] {
        Hazard hazard = make();
        hazard.benign = false;
        return hazard;
    });
}

} // namespace

KernelRun::KernelRun(KernelFunctionPtr function, ptx::Launch launch,
                     std::shared_ptr<GridWorkspace> workspace)
    : function_(std::move(function)), launch_(std::move(launch)), workspace_(std::move(workspace)),
      milliseconds_(state().settings.milliseconds) {
    launch_.workspace = reinterpret_cast<uintptr_t>(workspace_.get());
    launch_.find = [this](uintptr_t address, ptx::Segment &segment) {
        return find(address, segment);
    };
    // What the program binds to references later concerns later launches only.
    auto bound = bound_textures(*function_->module);
    launch_.find_texture = [this, bound](uint64_t handle, bool surface, std::string &why) {
        if (auto found = bound.find(handle); found != bound.end()) {
            why = found->second.why;
            return found->second.texture;
        }
        Lock lock(state().mutex);
        return texture_of(*function_->owner, handle, surface, why);
    };
    launch_.set_condition = [this](uint64_t handle, uint32_t value) {
        Lock lock(state().mutex);
        uint64_t number = set_condition(handle, value);
        if (number)
            conditions_set_.push_back(number);
        return number != 0;
    };
    if (launch_.checked)
        launch_.observe = [this, checks = state().settings.checks](ptx::Machine &machine) {
            return check::make_observer(
                machine, checks, report_hazard,
                [this](uintptr_t address, uintptr_t &begin) { return describe(address, begin); });
        };
    launch_.shared_rounding = state().settings.shared_rounding;
    launch_.warn = warn;
    launch_.print = [this](const std::string &text) {
        prints_ = true;
        std::fwrite(text.data(), 1, text.size(), stdout);
        std::fflush(stdout);
    };
}

bool KernelRun::advance(uint64_t steps) {
    if (!run_) {
        if (workspace_)
            *workspace_ = {};
        run_ = std::make_unique<ptx::Run>(launch_);
    }
    if (launch_.prerequisite && launch_.prerequisite->over && (!splits_ || waits()))
        launch_.prerequisite->ended = true;
    bool early = launch_.prerequisite && !launch_.prerequisite->ended;
    early_pieces_ += early;
    if (!over_)
        run_piece(steps);
    // Work that waits for this kernel relies on the end of the prerequisite, too.
    return over_ && (!early || failed_);
}

void KernelRun::run_piece(uint64_t steps) {
    Clock::time_point begin = Clock::now();
    ptx::Run::State state = run_->advance(steps);
    taken_ += Clock::now() - begin;
    bool late = milliseconds_ && taken_ > std::chrono::milliseconds(milliseconds_);
    if (state == ptx::Run::State::More && late) {
        run_->end_late(milliseconds_);
        state = ptx::Run::State::Failed;
    }
    failed_ = state == ptx::Run::State::Failed;
    over_ = state != ptx::Run::State::More;
}

// Describes memory that a check has found something in. Sets `begin` to where it begins.
std::string KernelRun::describe(uintptr_t address, uintptr_t &begin) const {
    for (size_t i = 0; i < launch_.variables.size(); i++) {
        const ptx::Variable &variable = launch_.program->variables[i];
        begin = launch_.variables[i];
        if (address - begin < variable.bytes())
            return "variable '" + variable.name + "'";
    }
    ptx::Segment block;
    if (launch_.heap && launch_.heap->contains(address) && launch_.heap->find(address, block)) {
        begin = block.begin;
        return "memory that malloc returned in a kernel";
    }
    Lock lock(state().mutex);
    const Allocation *allocation = find_allocation(address);
    begin = allocation ? allocation->begin : address;
    return describe_memory(begin);
}

bool KernelRun::find(uintptr_t address, ptx::Segment &segment) {
    if (workspace_ && address - launch_.workspace < sizeof(GridWorkspace)) {
        segment = {launch_.workspace, sizeof(GridWorkspace),
                   reinterpret_cast<char *>(workspace_.get()), true};
        return true;
    }
    if (launch_.heap && launch_.heap->contains(address))
        return launch_.heap->find(address, segment);
    Lock lock(state().mutex);
    if (!look_up(address, segment))
        return false;
    auto [used, first] = used_.emplace(segment.begin, segment.bytes);
    if (first)
        come_to_use(segment);
    // At reserved addresses, more memory may have been mapped since the last look-up.
    used->second = std::max(used->second, segment.bytes);
    return true;
}

// Called when the kernel first accesses an allocation. If the host can access the memory too, adds
// the whole allocation to the operation's writes: the kernel may write any of it, and a free must
// keep the memory until the kernel ends.
void KernelRun::come_to_use(const ptx::Segment &segment) {
    OperationPtr self = operation.lock();
    const Allocation *allocation = find_allocation(segment.begin);
    if (!self || !allocation || allocation->on_device())
        return;
    self->writes.push_back({segment.begin, segment.bytes});
    state().races.comes_to_use(self, *allocation);
}

// Looks up memory whose stream-ordered free has been submitted but has not run. Work that runs
// before the free may use this memory.
bool KernelRun::look_up_freed(uintptr_t address, ptx::Segment &segment) const {
    Freed::EntryPtr freed = state().freed.find(address);
    const Context &context = *function_->owner;
    if (!freed || !freed->there)
        return false;
    if (freed->pool ? !freed->pool->admits(*context.device) : freed->device != context.device)
        return false;
    segment = {freed->begin, freed->bytes, freed->host, true};
    return true;
}

bool KernelRun::look_up(uintptr_t address, ptx::Segment &segment) const {
    const Allocation *allocation = find_allocation(address);
    if (const Allocation *array = find_array_memory(address, 1)) {
        segment = {array->begin, array->bytes, array->host, true, true};
        return reaches(*function_->owner, *array, address, 1, false);
    }
    if (!allocation)
        return look_up_freed(address, segment);
    if (allocation->reservation) {
        bool writable;
        int device = function_->owner->device->ordinal;
        Range range = allocation->reservation->reach(device, address, &writable);
        segment = {range.begin, range.bytes, host_address(*allocation, range.begin), writable};
        return range.bytes > 0;
    }
    if (!reaches(*function_->owner, *allocation, address, 1, false))
        return false;
    bool read_only = allocation->read_only || (allocation->kind == MemoryKind::Registered &&
                                               (allocation->flags & CU_MEMHOSTREGISTER_READ_ONLY));
    segment = {allocation->begin, allocation->bytes, allocation->host, !read_only};
    return true;
}

// Converts accesses to ranges, each of which lies in one allocation. Accesses of equal size at
// equal distances become one range with several rows.
std::vector<Range> KernelRun::ranges(const std::vector<ptx::Accessed> &accessed) const {
    std::vector<Range> found;
    auto add = [&](uintptr_t begin, size_t bytes) {
        Range *last = found.empty() ? nullptr : &found.back();
        size_t distance = last ? begin - last->begin : 0;
        if (last && last->bytes == bytes && last->rows == 1 && same_memory(last->begin, begin))
            *last = {last->begin, bytes, distance, 2};
        else if (last && last->bytes == bytes && last->rows > 1 &&
                 distance == last->pitch * last->rows && same_memory(last->begin, begin))
            last->rows++;
        else
            found.push_back({begin, bytes});
    };
    for (const ptx::Accessed &access : accessed) {
        uintptr_t begin = access.begin, end = access.begin + access.bytes;
        while (begin < end) {
            auto memory = used_.upper_bound(begin);
            if (memory == used_.begin())
                break;
            --memory;
            uintptr_t part = std::min(end, memory->first + memory->second);
            if (part <= begin)
                break;
            add(begin, part - begin);
            begin = part;
        }
    }
    return found;
}

bool KernelRun::same_memory(uintptr_t one, uintptr_t other) const {
    return used_.upper_bound(one) == used_.upper_bound(other);
}

bool KernelRun::waits() const {
    // The kernel may be waiting for a value that the prerequisite will write.
    constexpr int most_early_pieces = 64;
    return over_ || (run_ && (run_->waits() || early_pieces_ >= most_early_pieces));
}

void KernelRun::begin_before_end_of(KernelRun *other, bool begun) {
    launch_.prerequisite = std::make_shared<ptx::Dependence>();
    launch_.prerequisite->ended = !other;
    if (!other)
        return;
    other->followers_.push_back(launch_.prerequisite);
    splits_ = state().chooser.replays();
    // Under the schedule `eager`, a kernel begins when the one before it has ended.
    bool may_begin = !begun && state().settings.schedule != Schedule::Eager;
    if (may_begin && !other->launch_.dependents)
        other->launch_.dependents = std::make_shared<ptx::Dependence>();
}

Outcome KernelRun::so_far() {
    Outcome outcome;
    outcome.conditions_set = conditions_set_;
    outcome.prints = prints_;
    outcome.allocates = launch_.heap != nullptr;
    if (launch_.record) {
        bool late = launch_.prerequisite != nullptr;
        outcome.reads = ranges(run_->reads(late));
        outcome.writes = ranges(run_->writes(late));
        outcome.updates = ranges(run_->atomics(late));
        if (late) {
            outcome.early_reads = ranges(run_->reads(false));
            outcome.early_writes = ranges(run_->writes(false));
            outcome.early_updates = ranges(run_->atomics(false));
            outcome.runs_ahead = launch_.prerequisite->runs_ahead;
        }
    }
    return outcome;
}

Outcome KernelRun::end() {
    for (const auto &follower : followers_) {
        follower->runs_ahead = run_->runs_ahead();
        follower->over = true;
    }
    Outcome outcome = so_far();
    if (!failed_)
        return outcome;
    outcome.status = run_->fault().status;
    set_fault();
    return outcome;
}

// Keeps the error of this launch. It is reported when the client has been asked for its names, or
// at once if no client has any.
void KernelRun::set_fault() const {
    const ptx::Fault &fault = run_->fault();
    KernelFault &last = state().kernel_fault;
    last.tell();
    last = {};
    last.text = fault.text;
    last.device = function_->owner->device->ordinal;
    bool in_heap = launch_.heap && launch_.heap->contains(fault.address);
    if (fault.address)
        last.text +=
            "; the address is " + (in_heap ? launch_.heap->describe(fault.address)
                                           : describe_address(fault.address, &last.address));
    if (OperationPtr self = operation.lock())
        last.label = self->label;
    last.print = state().settings.print_kernel_faults;
    last.told = false;
    if (!state().words.describe_memory && !state().words.describe_operation)
        last.tell();
}

} // namespace soft
