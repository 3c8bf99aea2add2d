#include "base/caller.h"

#include <cstdio>
#include <dlfcn.h>
#include <unistd.h>

// Python's functions are looked up in the process, so that the driver needs no Python.

namespace soft {
namespace {

using Object = void *;

template <class Function> Function *found(const char *name) {
    return reinterpret_cast<Function *>(dlsym(RTLD_DEFAULT, name));
}

struct Python {
    int (*is_initialized)() = found<int()>("Py_IsInitialized");
    int (*holds_lock)() = found<int()>("PyGILState_Check");
    Object (*own_state)() = found<Object()>("PyGILState_GetThisThreadState");
    int (*take_lock)() = found<int()>("PyGILState_Ensure");
    void (*return_lock)(int) = found<void(int)>("PyGILState_Release");
    Object (*frame)(Object) = found<Object(Object)>("PyThreadState_GetFrame");
    Object (*frame_before)(Object) = found<Object(Object)>("PyFrame_GetBack");
    Object (*code)(Object) = found<Object(Object)>("PyFrame_GetCode");
    int (*line)(Object) = found<int(Object)>("PyFrame_GetLineNumber");
    Object (*attribute)(Object, const char *) =
        found<Object(Object, const char *)>("PyObject_GetAttrString");
    const char *(*text)(Object) = found<const char *(Object)>("PyUnicode_AsUTF8");
    void (*drop)(Object) = found<void(Object)>("Py_DecRef");

    // PyThreadState_GetFrame and others exist since Python 3.9.
    bool complete() const {
        return is_initialized && holds_lock && own_state && take_lock && return_lock && frame &&
               frame_before && code && line && attribute && text && drop;
    }
};

// Looked up again as long as there is no Python: the program may load it later.
const Python *python() {
    static Python known;
    if (!known.complete())
        known = Python();
    return known.complete() && known.is_initialized() && known.own_state() ? &known : nullptr;
}

bool is_of_program(const std::string &file) {
    for (const char *part : {"/site-packages/", "/dist-packages/", "/lib/python3", "/cudadrv/_"})
        if (file.find(part) != std::string::npos)
            return false;
    return file.find('<') != 0;
}

std::string relative(const std::string &file) {
    char folder[4096];
    if (!getcwd(folder, sizeof folder))
        return file;
    std::string start = std::string(folder) + "/";
    return file.compare(0, start.size(), start) == 0 ? file.substr(start.size()) : file;
}

std::string file_of(const Python &api, Object frame) {
    Object code = api.code(frame), name = api.attribute(code, "co_filename");
    const char *text = name ? api.text(name) : nullptr;
    std::string file = text ? text : "";
    if (name)
        api.drop(name);
    api.drop(code);
    return file;
}

// Returns the innermost line of the program; if there is none, the innermost line of any file.
std::string innermost(const Python &api) {
    std::string first;
    for (Object frame = api.frame(api.own_state()); frame;) {
        std::string file = file_of(api, frame);
        std::string place = relative(file) + ":" + std::to_string(api.line(frame));
        bool of_program = is_of_program(file);
        Object before = api.frame_before(frame);
        api.drop(frame);
        if (of_program) {
            if (before)
                api.drop(before);
            return place;
        }
        if (first.empty())
            first = place;
        frame = before;
    }
    return first;
}

} // namespace

bool holds_interpreter() {
    const Python *api = python();
    return api && api->holds_lock();
}

std::string python_line(bool waits) {
    const Python *api = python();
    if (!api || (!waits && !api->holds_lock()))
        return "";
    int before = api->take_lock();
    std::string line = innermost(*api);
    api->return_lock(before);
    return line;
}

std::string place_of_code(const void *instruction) {
    Dl_info info = {};
    if (!instruction || !dladdr(instruction, &info) || !info.dli_fname)
        return "";
    char offset[32];
    const void *start = info.dli_sname ? info.dli_saddr : info.dli_fbase;
    std::snprintf(offset, sizeof offset, "+0x%tx",
                  static_cast<const char *>(instruction) - static_cast<const char *>(start));
    std::string function = info.dli_sname ? std::string(info.dli_sname) + offset + " of " : "";
    return function + info.dli_fname + (info.dli_sname ? "" : offset);
}

} // namespace soft
