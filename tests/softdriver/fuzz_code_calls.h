// Included by fuzz.cpp after `perform`: calls of functions whose types do not tell which arguments
// are useful.

CUresult call(const char *name, CUresult (*function)(CUmodule *, const void *)) {
    Argument<CUmodule *> module;
    Argument<const void *> code;
    code.value = any_code().data;
    return perform<CUmodule *, const void *>(name, function, module, code);
}

CUresult call(const char *name,
              CUresult (*function)(CUmodule *, const void *, unsigned, CUjit_option *, void **)) {
    Argument<CUmodule *> module;
    Argument<const void *> code;
    CodeOptions options;
    code.value = any_code().data;
    return perform<CUmodule *, const void *, unsigned, CUjit_option *, void **>(
        name, function, module, code, options.count, options.options, options.values);
}

// cuLibraryLoadData and cuLibraryLoadFromFile.
template <class Source>
CUresult call(const char *name,
              CUresult (*function)(CUlibrary *, const Source *, CUjit_option *, void **, unsigned,
                                   CUlibraryOption *, void **, unsigned)) {
    Argument<CUlibrary *> library;
    Argument<const Source *> code;
    CodeOptions options, others;
    Argument<CUlibraryOption *> kinds;
    CUlibraryOption known[CodeOptions::room];
    for (CUlibraryOption &each : known)
        each = static_cast<CUlibraryOption>(player->random.below(3));
    kinds.value = player->chance(97) ? known : nullptr;
    if constexpr (std::is_void_v<Source>)
        code.value = any_code().data;
    return perform<CUlibrary *, const Source *, CUjit_option *, void **, unsigned,
                   CUlibraryOption *, void **, unsigned>(
        name, function, library, code, options.options, options.values, options.count, kinds,
        others.values, others.count);
}

// cuParamSetv, which reads as many bytes as its last argument says.
CUresult call(const char *name, CUresult (*function)(CUfunction, int, void *, unsigned)) {
    player->shape = shape_of(name);
    Argument<CUfunction> kernel;
    Argument<int> offset;
    Argument<void *> data;
    Argument<unsigned> bytes;
    offset.value = static_cast<int>(player->random.below(40)) - 1;
    bytes.value = static_cast<unsigned>(player->random.below(player->chance(90) ? 20 : 4097));
    return perform<CUfunction, int, void *, unsigned>(name, function, kernel, offset, data, bytes);
}

CUresult call(const char *name,
              CUresult (*function)(unsigned, CUjit_option *, void **, CUlinkState *)) {
    CodeOptions options;
    Argument<CUlinkState *> link;
    return perform<unsigned, CUjit_option *, void **, CUlinkState *>(
        name, function, options.count, options.options, options.values, link);
}

CUresult call(const char *name,
              CUresult (*function)(CUlinkState, CUjitInputType, void *, size_t, const char *,
                                   unsigned, CUjit_option *, void **)) {
    Argument<CUlinkState> link;
    Argument<CUjitInputType> type;
    Argument<void *> data;
    Argument<size_t> bytes;
    Argument<const char *> text;
    CodeOptions options;
    Code code = any_code();
    data.value = const_cast<char *>(code.data);
    bytes.value = code.bytes - (code.bytes && player->chance(20));
    player->shape.limit = SIZE_MAX;
    return perform<CUlinkState, CUjitInputType, void *, size_t, const char *, unsigned,
                   CUjit_option *, void **>(name, function, link, type, data, bytes, text,
                                            options.count, options.options, options.values);
}

CUresult call(const char *name, CUresult (*function)(CUlinkState, CUjitInputType, const char *,
                                                     unsigned, CUjit_option *, void **)) {
    Argument<CUlinkState> link;
    Argument<CUjitInputType> type;
    Argument<const char *> path;
    CodeOptions options;
    return perform<CUlinkState, CUjitInputType, const char *, unsigned, CUjit_option *, void **>(
        name, function, link, type, path, options.count, options.options, options.values);
}

CUresult call(const char *name,
              CUresult (*function)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                   unsigned, unsigned, CUstream, void **, void **)) {
    Argument<CUfunction> kernel;
    Argument<unsigned> sizes[6], shared;
    Argument<CUstream> stream;
    KernelArguments given;
    kernel.value = any_kernel();
    for (auto &size : sizes)
        size.value = any_extent();
    shared.value = player->chance(90) ? 0 : static_cast<unsigned>(any_bits());
    return perform<CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   CUstream, void **, void **>(name, function, kernel, sizes[0], sizes[1], sizes[2],
                                               sizes[3], sizes[4], sizes[5], shared, stream,
                                               given.parameters, given.extra);
}

CUresult call(const char *name,
              CUresult (*function)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                                   unsigned, unsigned, CUstream, void **)) {
    Argument<CUfunction> kernel;
    Argument<unsigned> sizes[6], shared;
    Argument<CUstream> stream;
    KernelArguments given;
    kernel.value = any_kernel();
    for (auto &size : sizes)
        size.value = any_extent();
    shared.value = 0;
    return perform<CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                   CUstream, void **>(name, function, kernel, sizes[0], sizes[1], sizes[2],
                                      sizes[3], sizes[4], sizes[5], shared, stream,
                                      given.parameters);
}

// cuGraphDebugDotPrint, which would write a file anywhere.
CUresult call(const char *name, CUresult (*function)(CUgraph, const char *, unsigned)) {
    Argument<CUgraph> graph;
    Argument<const char *> path;
    Argument<unsigned> flags;
    path.value = player->chance(90) ? "/dev/null" : "/nonexistent/graph";
    return perform<CUgraph, const char *, unsigned>(name, function, graph, path, flags);
}

CUresult call(const char *name,
              CUresult (*function)(const CUlaunchConfig *, CUfunction, void **, void **)) {
    Argument<const CUlaunchConfig *> config;
    Argument<CUfunction> kernel;
    KernelArguments given;
    kernel.value = any_kernel();
    return perform<const CUlaunchConfig *, CUfunction, void **, void **>(
        name, function, config, kernel, given.parameters, given.extra);
}
