/* A stand-in for NVIDIA's NVRTC, of the major version MAJOR. Its PTX is always the same. It has few
 * functions, as old versions do. It opens its builtins by their name alone, as NVRTC 13.0 does. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#ifdef BUILTINS

const char builtins[] = "not empty";

#else

#define TEXT(number) #number
#define TEXT_OF(macro) TEXT(macro)
#define RELEASE ".7"

enum { SUCCESS = 0, INVALID_INPUT = 3, INVALID_PROGRAM = 4, COMPILATION = 6, BUILTINS_FAILED = 7 };

typedef struct {
    int fails, compiled, has_cubin;
    char name[64], log[256];
} Program;

static const char cubin[] = "\x7f"
                            "ELF: machine code";
static const char ptx[] = "//\n// of the stand-in\n.version 8.0\n.target sm_80\n.address_size 64\n"
                          ".visible .entry triple(.param .u64 at)\n{\n"
                          "    .reg .b64 %at;\n    .reg .b32 %value;\n"
                          "    ld.param.u64 %at, [at];\n"
                          "    ld.global.u32 %value, [%at];\n"
                          "    mul.lo.u32 %value, %value, 3;\n"
                          "    st.global.u32 [%at], %value;\n    ret;\n}\n";

const char *nvrtcGetErrorString(int status) { return status ? "stand-in: error" : "stand-in"; }

int nvrtcVersion(int *major, int *minor) {
    if (!major || !minor)
        return INVALID_INPUT;
    *major = MAJOR;
    *minor = 7;
    return SUCCESS;
}

/* Appends all headers to the name of the program. The log contains this name. */
int nvrtcCreateProgram(Program **program, const char *source, const char *name, int count,
                       const char *const *headers, const char *const *names) {
    if (!program || !source)
        return INVALID_INPUT;
    *program = calloc(1, sizeof **program);
    (*program)->fails = strstr(source, "mistake") != NULL;
    strcpy((*program)->name, name);
    for (int i = 0; i < count; i++)
        strcat(strcat((*program)->name, headers[i]), names[i]);
    return SUCCESS;
}

int nvrtcDestroyProgram(Program **program) {
    if (!program || !*program)
        return INVALID_PROGRAM;
    free(*program);
    *program = NULL;
    return SUCCESS;
}

int nvrtcCompileProgram(Program *program, int count, const char *const *options) {
    if (!program)
        return INVALID_PROGRAM;
    if (!dlopen("libnvrtc-builtins.so." TEXT_OF(MAJOR) RELEASE, RTLD_LAZY))
        return BUILTINS_FAILED;
    strcat(strcpy(program->log, program->name), program->fails ? ": a mistake" : ": a remark");
    if (program->fails)
        return COMPILATION;
    program->compiled = 1;
    for (int i = 0; i < count; i++)
        program->has_cubin |= strstr(options[i], "=sm_") != NULL;
    return SUCCESS;
}

static int size_of(Program *program, const char *text, size_t length, size_t *size) {
    if (!program || !size)
        return program ? INVALID_INPUT : INVALID_PROGRAM;
    *size = text ? length : 0;
    return SUCCESS;
}

static int copy(Program *program, const char *text, size_t length, char *to) {
    if (!program || !to)
        return program ? INVALID_INPUT : INVALID_PROGRAM;
    memcpy(to, text ? text : "", text ? length : 0);
    return SUCCESS;
}

#define CUBIN program && program->has_cubin ? cubin : NULL, sizeof cubin
#define PTX program && program->compiled ? ptx : "", program && program->compiled ? sizeof ptx : 1
#define LOG program ? program->log : NULL, program ? strlen(program->log) + 1 : 0

int nvrtcGetCUBINSize(Program *program, size_t *size) { return size_of(program, CUBIN, size); }
int nvrtcGetCUBIN(Program *program, char *to) { return copy(program, CUBIN, to); }
int nvrtcGetPTXSize(Program *program, size_t *size) { return size_of(program, PTX, size); }
int nvrtcGetPTX(Program *program, char *to) { return copy(program, PTX, to); }
int nvrtcGetProgramLogSize(Program *program, size_t *size) { return size_of(program, LOG, size); }
int nvrtcGetProgramLog(Program *program, char *to) { return copy(program, LOG, to); }

#endif
