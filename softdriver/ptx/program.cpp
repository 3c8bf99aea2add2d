#include "ptx/program.h"

#include "base/range.h"
#include "ptx/call_graph.h"
#include "ptx/decoder.h"
#include "ptx/families.h"
#include "ptx/parser.h"

#include <algorithm>

namespace soft::ptx {

const std::unordered_map<std::string_view, Decode> &opcodes() {
    static const Opcodes known = [] {
        Opcodes all;
        for (auto add : {add_load_store, add_moves,        add_control,         add_barriers,
                         add_integer,    add_bits,         add_comparisons,     add_conversions,
                         add_float,      add_approximate,  add_atomics,         add_shuffles,
                         add_stack,      add_clusters,     add_dependence,      add_mbarriers,
                         add_copies,     add_matrix_moves, add_matrix_products, add_wmma,
                         add_video,      add_textures,     add_surfaces,        add_wgmma,
                         add_tensor_maps})
            add(all);
        return all;
    }();
    return known;
}

namespace {

// The limit of static shared memory on all devices. A kernel that needs more must use dynamic
// shared memory.
constexpr size_t most_static_shared = 48 << 10;

constexpr size_t threads_of_block = 1024;
constexpr size_t registers_of_multiprocessor = 65536;
constexpr size_t registers_of_thread = 255;
constexpr size_t register_unit = 256; // a warp has a multiple of this number

void number_shared(Decoding &decoding) {
    unsigned next = 0;
    auto add = [&](int function, const std::vector<Variable> &variables) {
        for (size_t i = 0; i < variables.size(); i++)
            if (variables[i].space == Space::Shared)
                decoding.shared[{function, int(i)}] = next++;
    };
    add(-1, decoding.tree.variables);
    for (size_t i = 0; i < decoding.tree.functions.size(); i++)
        add(int(i), decoding.tree.functions[i].variables);
}

// Assigns offsets in local memory to the module's variables in .local.
void lay_out_local(Decoding &decoding) {
    size_t end = 0;
    for (size_t i = 0; i < decoding.tree.variables.size(); i++) {
        const Variable &variable = decoding.tree.variables[i];
        if (variable.space != Space::Local)
            continue;
        end = round_up(end, std::max(variable.alignment, size_t{1}));
        decoding.local[int(i)] = uint32_t(end);
        end += variable.bytes();
        if (end > most_local_bytes) {
            decoding.problems.push_back(
                {variable.line, "the module's variables in .local need more "
                                "than the " +
                                    std::to_string(most_local_bytes) + " bytes that a thread has"});
            return;
        }
    }
    decoding.library.local_bytes = round_up(end, 16);
}

// Assigns offsets to the static shared variables of a kernel. Arrays without a size begin at the
// end of the static shared memory.
class SharedLayout {
  public:
    SharedLayout(const Decoding &decoding, Code &code) : decoding_(decoding), code_(code) {}

    void add(int function, const std::vector<Variable> &variables, int index) {
        const Variable &variable = variables[size_t(index)];
        if (variable.space != Space::Shared)
            return;
        unsigned number = decoding_.shared.at({function, index});
        if (variable.count == 0) {
            dynamic_.push_back(number);
            dynamic_name_ = variable.name;
            alignment_ = std::max(alignment_, variable.alignment);
            return;
        }
        end_ = round_up(end_, std::max(variable.alignment, size_t{1}));
        code_.shared_offsets[number] = end_;
        code_.shared_names[end_] = variable.name;
        end_ += variable.bytes();
    }

    size_t finish() {
        if (!dynamic_.empty())
            end_ = round_up(end_, alignment_);
        for (unsigned number : dynamic_)
            code_.shared_offsets[number] = end_;
        if (!dynamic_.empty())
            code_.shared_names[end_] = dynamic_name_;
        return end_;
    }

  private:
    const Decoding &decoding_;
    Code &code_;
    size_t end_ = 0, alignment_ = 1;
    std::vector<unsigned> dynamic_;
    std::string dynamic_name_;
};

// Returns how many threads a block of the function may have.
size_t most_threads(const Function &function) {
    size_t threads = 1;
    for (unsigned side : function.max_threads)
        threads *= side;
    return threads ? std::min(threads, threads_of_block) : threads_of_block;
}

// Estimates how many registers a function needs, from the registers in its code and the limits of
// the hardware. The estimate is so low that a block of the largest legal size always fits on a
// multiprocessor: a launch never fails for a lack of registers, so the occupancy must not be 0.
unsigned estimate_registers(const Function &function) {
    size_t words = 8;
    for (const Register &reg : function.registers)
        words += size_of(reg.type) > 4 ? 2 : reg.type == Type::Pred ? 0 : 1;
    size_t warps = (most_threads(function) + warp_size - 1) / warp_size;
    size_t room = registers_of_multiprocessor / warps / register_unit * register_unit / warp_size;
    size_t most = function.max_registers ? function.max_registers : registers_of_thread;
    return unsigned(std::min({words / 2 + 8, room, most}));
}

// Creates an empty Code for each function that has a body, and the program's list of variables.
void prepare(Decoding &decoding, Program &program) {
    const Tree &tree = decoding.tree;
    for (size_t i = 0; i < tree.functions.size(); i++) {
        decoding.library.codes.emplace_back();
        if (!tree.functions[i].defined)
            continue;
        auto code = std::make_unique<Code>();
        code->name = tree.functions[i].name;
        code->entry = tree.functions[i].entry;
        code->index = int(i);
        code->library = &decoding.library;
        places_of(tree.functions[i], code->results, code->parameters);
        decoding.library.codes.back() = std::move(code);
    }
    for (const Variable &variable : tree.variables) {
        bool kept = variable.space == Space::Global || variable.space == Space::Const;
        decoding.program_variables.push_back(kept ? int(program.variables.size()) : -1);
        if (kept)
            program.variables.push_back(variable);
    }
    for (Variable &variable : program.variables)
        for (Variable::Address &address : variable.addresses)
            if (!address.function) {
                address.target = decoding.program_variables.at(size_t(address.target));
                if (address.target < 0)
                    decoding.problems.push_back(
                        {variable.line, "the initial address in '" + variable.name +
                                            "' does not refer to a variable in .global or .const"});
            }
    number_shared(decoding);
    lay_out_local(decoding);
}

// Computes how much shared and constant memory is used by a kernel and the functions that it may
// call, whether they use the heap, and whether blocks communicate.
void count_memory(const Decoding &decoding, const CallGraph &graph, int index, Code &code,
                  Kernel &kernel) {
    const Tree &tree = decoding.tree;
    std::vector<int> functions = graph.reachable(index);
    SharedLayout shared(decoding, code);
    kernel.independent_blocks = true;
    for (int variable : graph.variables(functions)) {
        shared.add(-1, tree.variables, variable);
        const Variable &named = tree.variables[size_t(variable)];
        if (named.space == Space::Const)
            kernel.const_bytes += named.bytes();
    }
    for (int function : functions) {
        kernel.uses_heap |= is_heap_function(tree.functions[size_t(function)]);
        const auto &called = decoding.library.codes[size_t(function)];
        kernel.independent_blocks &= !(called && called->communicates);
        kernel.has_copies |= called && called->has_copies;
        kernel.uses_reserved_shared |= called && called->uses_reserved_shared;
        kernel.uses_cluster_barrier |= called && called->uses_cluster_barrier;
        kernel.reads_time |= called && called->reads_time;
        const auto &variables = tree.functions[size_t(function)].variables;
        for (size_t i = 0; i < variables.size(); i++)
            shared.add(function, variables, int(i));
    }
    kernel.shared_bytes = shared.finish();
}

Kernel describe(const Decoding &decoding, const CallGraph &graph, int index,
                const std::shared_ptr<Library> &library) {
    const Function &function = decoding.tree.functions[size_t(index)];
    Code &code = *library->codes[size_t(index)];
    Kernel kernel;
    kernel.name = function.name;
    kernel.parameters.assign(function.variables.begin(),
                             function.variables.begin() + function.parameters);
    for (const Variable &parameter : kernel.parameters)
        kernel.parameter_bytes =
            std::max(kernel.parameter_bytes, parameter.offset + parameter.bytes());
    count_memory(decoding, graph, index, code, kernel);
    if (kernel.shared_bytes > most_static_shared)
        decoding.problems.push_back(
            {function.line, "kernel '" + kernel.name + "' needs " +
                                std::to_string(kernel.shared_bytes) +
                                " bytes of static shared memory, and the limit is " +
                                std::to_string(most_static_shared)});
    for (int i = 0; i < 3; i++) {
        kernel.max_threads[i] = function.max_threads[i];
        kernel.required_threads[i] = function.required_threads[i];
        kernel.required_cluster[i] = function.required_cluster[i];
    }
    kernel.max_cluster = function.max_cluster;
    kernel.explicit_cluster = function.explicit_cluster;
    kernel.registers = estimate_registers(function);
    kernel.code = std::shared_ptr<const Code>(library, &code);
    return kernel;
}

} // namespace

static std::shared_ptr<const Program> decode(const Tree &tree, std::vector<Problem> &problems,
                                             bool is_part) {
    size_t before = problems.size();
    auto program = std::make_shared<Program>();
    auto library = std::make_shared<Library>();
    Decoding decoding{tree, problems, *library, is_part, {}, {}, {}};
    program->version = tree.version;
    program->capability = tree.capability;
    program->target = tree.target;
    prepare(decoding, *program);
    for (size_t i = 0; i < tree.functions.size(); i++)
        if (tree.functions[i].defined)
            Decoder(decoding, int(i)).decode();
    CallGraph graph(tree);
    std::vector<size_t> local_bytes;
    for (const auto &code : library->codes)
        local_bytes.push_back(code ? code->local_bytes : 0);
    local_bytes = graph.deepest(local_bytes);
    for (size_t i = 0; i < tree.functions.size(); i++) {
        const Function &function = tree.functions[i];
        if (function.defined && function.entry) {
            program->kernels.push_back(describe(decoding, graph, int(i), library));
            program->kernels.back().local_bytes = library->local_bytes + local_bytes[i];
        } else if (function.visible) {
            program->functions.push_back(function.name);
        }
    }
    if (problems.size() > before)
        return nullptr;
    return program;
}

std::shared_ptr<const Program> decode(const Tree &tree, std::vector<Problem> &problems) {
    return decode(tree, problems, false);
}

std::shared_ptr<const Program> compile(std::string_view text, std::vector<Problem> &problems,
                                       int newest) {
    std::optional<Tree> tree = parse(text, problems, newest);
    return tree ? decode(*tree, problems) : nullptr;
}

bool check_part(std::string_view text, std::vector<Problem> &problems, int newest) {
    std::optional<Tree> tree = parse(text, problems, newest);
    return tree && decode(*tree, problems, true);
}

} // namespace soft::ptx
