/* A libnvrtc that programs find instead of NVIDIA's: it returns PTX where NVRTC returns a cubin.
 *
 * A cubin is machine code, which the software driver cannot run. All other functions call NVIDIA's
 * NVRTC: cudadrv/_libcuda.py puts a link to NVRTC beside this library, as libnvrtc-real.so.13
 * beside libnvrtc.so.13. NVRTC is loaded at the first call.
 *
 * No header of NVRTC is needed. The library is built like an extension module, so that wheels can
 * contain it: see api/module.cpp. setup.py gives it the SONAME and the version of symbols that
 * NVRTC has for CUDA 13, and cudadrv/_libcuda.py makes the library for CUDA 12 from it. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Values of nvrtcResult. */
enum { NVRTC_SUCCESS = 0, NVRTC_ERROR_INTERNAL_ERROR = 11 };

#define OWN_NAME "libnvrtc" /* the names of the files have the version after it */
#define REAL_NAME "libnvrtc-real"

const char cudadrvNvrtc[] = "libnvrtc of cudadrv: PTX in place of cubins";

/* The mark at the beginning of each PTX text that stands for a cubin. The software driver links
 * such a text as a cubin (code/link.cpp). The mark does not end its line, so that the lines of the
 * PTX keep their numbers. */
const char cudadrvNvrtcMark[] = "/* cudadrv: PTX in place of a cubin */ ";
#define MARK_LENGTH (sizeof cudadrvNvrtcMark - 1)

/* The functions whose calls are forwarded unchanged. Some versions of NVRTC lack some of them. */
#define FORWARDED(NAME)                                                                            \
    NAME(nvrtcVersion)                                                                             \
    NAME(nvrtcGetNumSupportedArchs)                                                                \
    NAME(nvrtcGetSupportedArchs)                                                                   \
    NAME(nvrtcCreateProgram)                                                                       \
    NAME(nvrtcDestroyProgram)                                                                      \
    NAME(nvrtcCompileProgram)                                                                      \
    NAME(nvrtcGetPTXSize)                                                                          \
    NAME(nvrtcGetPTX)                                                                              \
    NAME(nvrtcGetNVVMSize)                                                                         \
    NAME(nvrtcGetNVVM)                                                                             \
    NAME(nvrtcGetLTOIRSize)                                                                        \
    NAME(nvrtcGetLTOIR)                                                                            \
    NAME(nvrtcGetOptiXIRSize)                                                                      \
    NAME(nvrtcGetOptiXIR)                                                                          \
    NAME(nvrtcGetTileIRSize)                                                                       \
    NAME(nvrtcGetTileIR)                                                                           \
    NAME(nvrtcGetProgramLogSize)                                                                   \
    NAME(nvrtcGetProgramLog)                                                                       \
    NAME(nvrtcAddNameExpression)                                                                   \
    NAME(nvrtcGetLoweredName)                                                                      \
    NAME(nvrtcGetPCHHeapSize)                                                                      \
    NAME(nvrtcSetPCHHeapSize)                                                                      \
    NAME(nvrtcGetPCHCreateStatus)                                                                  \
    NAME(nvrtcGetPCHHeapSizeRequired)                                                              \
    NAME(nvrtcSetFlowCallback)                                                                     \
    NAME(nvrtcInstallBundledHeaders)                                                               \
    NAME(nvrtcRemoveBundledHeaders)                                                                \
    NAME(nvrtcGetBundledHeadersInfo)
#define ALL(NAME)                                                                                  \
    FORWARDED(NAME) NAME(nvrtcGetErrorString) NAME(nvrtcGetCUBINSize) NAME(nvrtcGetCUBIN)

#define PLACE(name) place_##name,
#define TEXT(name) #name,
enum { ALL(PLACE) FUNCTIONS };
static const char *const names[] = {ALL(TEXT)};

/* No function has more than six arguments, and all of them are integers or pointers. So registers
 * pass them, and a function can be called with six arguments whatever its type is. */
typedef long (*Function)(long, long, long, long, long, long);

static pthread_once_t loading = PTHREAD_ONCE_INIT;
static Function functions[FUNCTIONS]; /* null: NVRTC lacks the function, or was not loaded */

static void complain(const char *path, const char *why) {
    fprintf(stderr, "cudadrv: libnvrtc: cannot load NVIDIA's NVRTC (%s): %s\n", path, why);
}

/* Writes the path of NVIDIA's NVRTC to `path`, with all links resolved, so that NVRTC finds files
 * beside it. */
static int find_real(char path[PATH_MAX]) {
    Dl_info self;
    char link[PATH_MAX];
    const char *slash =
        dladdr(cudadrvNvrtc, &self) && self.dli_fname ? strrchr(self.dli_fname, '/') : NULL;
    if (!slash || strncmp(slash + 1, OWN_NAME, strlen(OWN_NAME)))
        return 0;
    const char *version = slash + 1 + strlen(OWN_NAME);
    int folder = (int)(slash - self.dli_fname);
    int length =
        snprintf(link, sizeof link, "%.*s/" REAL_NAME "%s", folder, self.dli_fname, version);
    return length < (int)sizeof link && realpath(link, path);
}

/* Loads the library of built-in functions that lies beside NVRTC. NVRTC opens that library by its
 * file name, and some versions do not search their own folder for it. */
static void load_builtins(const char *nvrtc) {
    int major, minor;
    char path[PATH_MAX];
    int folder = (int)(strrchr(nvrtc, '/') - nvrtc);
    Function version = functions[place_nvrtcVersion];
    if (!version || (int)version((long)&major, (long)&minor, 0, 0, 0, 0) != NVRTC_SUCCESS)
        return;
    int length =
        snprintf(path, sizeof path, "%.*s/libnvrtc-builtins.so.%d.%d", folder, nvrtc, major, minor);
    if (length < (int)sizeof path)
        dlopen(path, RTLD_LAZY | RTLD_LOCAL);
}

static void load_real(void) {
    char path[PATH_MAX];
    if (!find_real(path)) {
        complain(REAL_NAME, "there is no link to it");
        return;
    }
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    if (!library) {
        complain(path, dlerror());
        return;
    }
    for (int place = 0; place < FUNCTIONS; place++) {
        void *found = dlsym(library, names[place]);
        memcpy(&functions[place], &found, sizeof found);
    }
    load_builtins(path);
}

static Function real(int place) {
    pthread_once(&loading, load_real);
    return functions[place];
}

static long call(int place, long a, long b, long c, long d, long e, long f) {
    Function function = real(place);
    return function ? function(a, b, c, d, e, f) : NVRTC_ERROR_INTERNAL_ERROR;
}

#define FORWARD(name)                                                                              \
    long name(long a, long b, long c, long d, long e, long f) {                                    \
        return call(place_##name, a, b, c, d, e, f);                                               \
    }
FORWARDED(FORWARD)

const char *nvrtcGetErrorString(int result) {
    Function function = real(place_nvrtcGetErrorString);
    return function ? (const char *)function(result, 0, 0, 0, 0, 0) : "NVRTC could not be loaded";
}

static int size_of(int place, void *program, size_t *size) {
    return (int)call(place, (long)program, (long)size, 0, 0, 0, 0);
}

/* Returns the size of the PTX that stands for a program's cubin. Returns 0 if the program has no
 * cubin or no PTX. An empty PTX text has one byte, the zero byte at its end. */
static size_t ptx_for_cubin(void *program) {
    size_t size = 0;
    if (size_of(place_nvrtcGetCUBINSize, program, &size) || !size)
        return 0;
    return !size_of(place_nvrtcGetPTXSize, program, &size) && size > 1 ? size : 0;
}

int nvrtcGetCUBINSize(void *program, size_t *size) {
    size_t ptx = size ? ptx_for_cubin(program) : 0;
    if (!ptx)
        return size_of(place_nvrtcGetCUBINSize, program, size);
    *size = MARK_LENGTH + ptx;
    return NVRTC_SUCCESS;
}

int nvrtcGetCUBIN(void *program, char *cubin) {
    if (!cubin || !ptx_for_cubin(program))
        return (int)call(place_nvrtcGetCUBIN, (long)program, (long)cubin, 0, 0, 0, 0);
    memcpy(cubin, cudadrvNvrtcMark, MARK_LENGTH);
    return (int)call(place_nvrtcGetPTX, (long)program, (long)(cubin + MARK_LENGTH), 0, 0, 0, 0);
}

PyObject *PyModuleDef_Init(PyModuleDef *) __attribute__((weak));

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "cudadrv._nvrtc",
    .m_doc = "A libnvrtc that returns PTX in place of cubins, opened by its path.",
};

PyMODINIT_FUNC PyInit__nvrtc(void) { return PyModuleDef_Init(&definition); }
