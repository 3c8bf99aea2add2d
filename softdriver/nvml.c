/* A libnvidia-ml.so.1 (NVML) about the devices of the software driver.
 *
 * It reports the number of devices, their names, addresses, memory and utilization, properties that
 * all software devices have (no MIG devices, access to all peers, affinity to any processor), and a
 * constant power. All other functions return NVML_ERROR_NOT_SUPPORTED. The devices are those of the
 * libcuda.so.1 in the same folder. That library describes its devices without cuInit, so that a
 * program may fork afterwards, as it may with NVIDIA's NVML. Memory in use and utilization are
 * those of the calling process alone.
 *
 * No header of NVML is needed: the structures below are its binary interface. The library is built
 * like an extension module, so that wheels can contain it: see api/module.cpp. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define NVML_API __attribute__((visibility("default")))
#define MOST_DEVICES 16

/* Values of nvmlReturn_t. */
enum {
    NVML_SUCCESS = 0,
    NVML_UNINITIALIZED = 1,
    NVML_INVALID_ARGUMENT = 2,
    NVML_NOT_SUPPORTED = 3,
    NVML_NO_PERMISSION = 4,
    NVML_NOT_FOUND = 6,
    NVML_INSUFFICIENT_SIZE = 7,
    NVML_DRIVER_NOT_LOADED = 9,
    NVML_ARGUMENT_VERSION_MISMATCH = 25,
};

const char cudadrvSoftNvml[] = "libnvidia-ml of cudadrv: devices that are no GPUs";

/* As in api/control.h. */
typedef struct {
    char name[96], uuid[48];
    unsigned long long memory, used;
    int bus, major, minor, busy;
} Device;

typedef struct {
    unsigned long long total, free, used;
} Memory;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} Memory2;

typedef struct {
    char legacy_address[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char address[32];
} Pci;

/* Like Pci, but shorter: the structure of nvmlDeviceGetPciInfo_v2. */
typedef struct {
    char address[16];
    unsigned domain, bus, device, device_id, subsystem_id, reserved[4];
} Pci2;

typedef struct {
    unsigned gpu, memory;
} Utilization;

typedef struct {
    unsigned version, type;
    unsigned char value[44]; /* a text, or 16 bytes */
} Uuid;

typedef struct {
    unsigned version;
    char branch[80];
} Branch;

typedef struct {
    unsigned field, scope;
    long long time, latency;
    int type, status;
    unsigned long long value;
} Field;

enum { UUID_TEXT = 1, UUID_BYTES = 2 };
enum { HOPPER = 9, UNKNOWN_ARCHITECTURE = -1 };
enum { BY_NVLINK = 2, LAST_WAY_TO_PEER = 4 };              /* of nvmlGpuP2PCapsIndex_t */
enum { PEER_IS_SUPPORTED = 0, PEER_IS_NOT_SUPPORTED = 5 }; /* of nvmlGpuP2PStatus_t */

static const unsigned uuid_version = sizeof(Uuid) | 1u << 24;
static const unsigned branch_version = sizeof(Branch) | 1u << 24;
static const unsigned power_used = 70000, power_limit = 700000; /* milliwatts */
static const unsigned memory2_version = sizeof(Memory2) | 2u << 24;

static atomic_int users;
static pthread_once_t finding = PTHREAD_ONCE_INIT;
static int found; /* what find_driver returned */
static int (*describe_device)(int place, Device *device);
static int (*cuda_version)(int *version);

/* The handle of a device is the address of its element of this array. */
static char handles[MOST_DEVICES];

/* Finds the driver: the libcuda.so.1 beside this file. */
static int find_driver(void) {
    Dl_info self;
    char path[PATH_MAX];
    if (!dladdr(cudadrvSoftNvml, &self) || !self.dli_fname)
        return NVML_DRIVER_NOT_LOADED;
    const char *slash = strrchr(self.dli_fname, '/');
    int folder = slash ? (int)(slash - self.dli_fname) : 0;
    const char *form = slash ? "%.*s/libcuda.so.1" : "%.*slibcuda.so.1";
    if (snprintf(path, sizeof path, form, folder, self.dli_fname) >= (int)sizeof path)
        return NVML_DRIVER_NOT_LOADED;
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        return NVML_DRIVER_NOT_LOADED;
    *(void **)&describe_device = dlsym(library, "cudadrvSoftDescribeDevice");
    *(void **)&cuda_version = dlsym(library, "cuDriverGetVersion");
    return describe_device && cuda_version ? NVML_SUCCESS : NVML_DRIVER_NOT_LOADED;
}

static void find_driver_once(void) { found = find_driver(); }

static int nvml_ready(void) { return users > 0; }

static int begin(void) {
    pthread_once(&finding, find_driver_once);
    if (found == NVML_SUCCESS)
        users++;
    return found;
}

NVML_API int nvmlInit(void) { return begin(); }
NVML_API int nvmlInit_v2(void) { return begin(); }

NVML_API int nvmlInitWithFlags(unsigned flags) {
    return flags & ~3u ? NVML_INVALID_ARGUMENT : begin(); /* neither flag has an effect */
}

NVML_API int nvmlShutdown(void) {
    int before = users;
    while (before > 0)
        if (atomic_compare_exchange_weak(&users, &before, before - 1))
            return NVML_SUCCESS;
    return NVML_UNINITIALIZED;
}

NVML_API const char *nvmlErrorString(int status) {
    switch (status) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_UNINITIALIZED:
        return "Uninitialized: call nvmlInit first";
    case NVML_INVALID_ARGUMENT:
        return "Invalid argument";
    case NVML_NOT_SUPPORTED:
        return "Not supported by the software driver";
    case NVML_NO_PERMISSION:
        return "The software driver does not allow this change";
    case NVML_NOT_FOUND:
        return "Not found";
    case NVML_INSUFFICIENT_SIZE:
        return "Insufficient size";
    case NVML_DRIVER_NOT_LOADED:
        return "No software driver (libcuda.so.1) is beside this library";
    case NVML_ARGUMENT_VERSION_MISMATCH:
        return "Unknown version of a structure";
    default:
        return "Unknown error";
    }
}

/* Writes a text. The text and its zero byte must fit. */
static int put_text(char *text, unsigned size, const char *value) {
    if (!nvml_ready())
        return NVML_UNINITIALIZED;
    if (!text)
        return NVML_INVALID_ARGUMENT;
    if (strlen(value) >= size)
        return NVML_INSUFFICIENT_SIZE;
    strcpy(text, value);
    return NVML_SUCCESS;
}

/* Reads the description of a device. It is an error if `result`, the caller's place for the answer,
 * is null. */
static int read_device(const void *handle, const void *result, Device *device) {
    if (!nvml_ready())
        return NVML_UNINITIALIZED;
    uintptr_t place = (uintptr_t)handle - (uintptr_t)handles;
    if (!result || place >= MOST_DEVICES)
        return NVML_INVALID_ARGUMENT;
    return describe_device((int)place, device) ? NVML_INVALID_ARGUMENT : NVML_SUCCESS;
}

static int place_of(const void *handle) { return (int)((const char *)handle - handles); }

/* Returns the number of the branch of NVIDIA's drivers that had this version of CUDA first.
 * Versions that are newer than this list get greater numbers. Programs compare the number with
 * the least one that they need. */
static int driver_branch(int cuda) {
    static const struct {
        int cuda, branch;
    } first[] = {{12000, 525}, {12010, 530}, {12020, 535}, {12030, 545}, {12040, 550}, {12050, 555},
                 {12060, 560}, {12080, 570}, {12090, 575}, {13000, 580}, {13010, 590}};
    int branch = 0;
    for (size_t i = 0; i < sizeof first / sizeof *first && first[i].cuda <= cuda; i++)
        branch = first[i].branch + (cuda - first[i].cuda) / 10 * 5;
    return branch;
}

/* Reads the version of CUDA and the branch of the driver. */
static int read_version(int *cuda, int *branch) {
    if (!nvml_ready())
        return NVML_UNINITIALIZED;
    if (cuda_version(cuda))
        return NVML_INVALID_ARGUMENT;
    *branch = driver_branch(*cuda);
    return NVML_SUCCESS;
}

/* The zeros in these texts show that they are not versions of NVIDIA's drivers. */
NVML_API int nvmlSystemGetDriverVersion(char *text, unsigned size) {
    char version[32];
    int cuda, branch, status = read_version(&cuda, &branch);
    if (status)
        return status;
    snprintf(version, sizeof version, "%d.00.00", branch);
    return put_text(text, size, version);
}

NVML_API int nvmlSystemGetNVMLVersion(char *text, unsigned size) {
    char version[32];
    int cuda, branch, status = read_version(&cuda, &branch);
    if (status)
        return status;
    snprintf(version, sizeof version, "%d.%d.00.00", cuda / 1000, branch);
    return put_text(text, size, version);
}

NVML_API int nvmlSystemGetDriverBranch(Branch *given, unsigned size) {
    char name[32];
    int cuda, branch, status = read_version(&cuda, &branch);
    if (status)
        return status;
    if (!given)
        return NVML_INVALID_ARGUMENT;
    if (given->version != branch_version)
        return NVML_ARGUMENT_VERSION_MISMATCH;
    if (size > sizeof given->branch)
        size = sizeof given->branch;
    snprintf(name, sizeof name, "r%d_00", branch);
    return put_text(given->branch, size, name);
}

/* If the name does not fit, only its beginning is written. */
NVML_API int nvmlSystemGetProcessName(unsigned process, char *name, unsigned size) {
    char path[64];
    if (!nvml_ready())
        return NVML_UNINITIALIZED;
    if (!name || !size)
        return NVML_INVALID_ARGUMENT;
    snprintf(path, sizeof path, "/proc/%u/cmdline", process);
    FILE *file = fopen(path, "r");
    if (!file)
        return NVML_NOT_FOUND;
    size_t got = fread(name, 1, size - 1, file);
    fclose(file);
    name[got] = 0; /* the arguments, which follow the first zero, are not part of the name */
    return got ? NVML_SUCCESS : NVML_NOT_FOUND;
}

/* Units are systems of the S class, which have several GPUs in a case. */
NVML_API int nvmlUnitGetCount(unsigned *count) {
    if (!nvml_ready())
        return NVML_UNINITIALIZED;
    if (!count)
        return NVML_INVALID_ARGUMENT;
    *count = 0;
    return NVML_SUCCESS;
}

NVML_API int nvmlSystemGetCudaDriverVersion(int *version) {
    if (!nvml_ready())
        return NVML_UNINITIALIZED;
    return version && !cuda_version(version) ? NVML_SUCCESS : NVML_INVALID_ARGUMENT;
}

NVML_API int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    return nvmlSystemGetCudaDriverVersion(version);
}

NVML_API int nvmlDeviceGetCount_v2(unsigned *count) {
    Device device;
    if (!nvml_ready())
        return NVML_UNINITIALIZED;
    if (!count)
        return NVML_INVALID_ARGUMENT;
    for (*count = 0; *count < MOST_DEVICES; ++*count)
        if (describe_device((int)*count, &device))
            break;
    return NVML_SUCCESS;
}

NVML_API int nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

NVML_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    Device device;
    if (!nvml_ready())
        return NVML_UNINITIALIZED;
    if (!handle || index >= MOST_DEVICES || describe_device((int)index, &device))
        return NVML_INVALID_ARGUMENT;
    *handle = &handles[index];
    return NVML_SUCCESS;
}

NVML_API int nvmlDeviceGetHandleByIndex(unsigned index, void **handle) {
    return nvmlDeviceGetHandleByIndex_v2(index, handle);
}

/* Writes the PCI address. The domain has 8 digits, or 4 in the older form. */
static void write_address(const Device *device, char *text, size_t size, int digits) {
    snprintf(text, size, "%0*X:%02X:00.0", digits, 0, device->bus);
}

// Whether `text` is the device's UUID, with or without "GPU-" before it.
static int has_uuid(const Device *device, const char *text) {
    const char *bare = strchr(device->uuid, '-') + 1;
    return !strcmp(device->uuid, text) || !strcmp(bare, text);
}

static int has_address(const Device *device, const char *text) {
    char address[32], legacy[16];
    write_address(device, address, sizeof address, 8);
    write_address(device, legacy, sizeof legacy, 4);
    return !strcasecmp(address, text) || !strcasecmp(legacy, text);
}

static int find(int (*fits)(const Device *, const char *), const char *text, void **handle) {
    Device device;
    if (!nvml_ready())
        return NVML_UNINITIALIZED;
    if (!text || !handle)
        return NVML_INVALID_ARGUMENT;
    for (int place = 0; place < MOST_DEVICES && !describe_device(place, &device); place++)
        if (fits(&device, text)) {
            *handle = &handles[place];
            return NVML_SUCCESS;
        }
    return NVML_NOT_FOUND;
}

NVML_API int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    return find(has_uuid, uuid, handle);
}

NVML_API int nvmlDeviceGetHandleByUUIDV(const Uuid *uuid, void **handle) {
    char text[sizeof uuid->value + 4] = "GPU-";
    if (!nvml_ready())
        return NVML_UNINITIALIZED;
    if (!uuid)
        return NVML_INVALID_ARGUMENT;
    if (uuid->version != uuid_version)
        return NVML_ARGUMENT_VERSION_MISMATCH;
    if (uuid->type == UUID_TEXT)
        snprintf(text, sizeof text, "%.*s", (int)sizeof uuid->value, (const char *)uuid->value);
    else if (uuid->type == UUID_BYTES)
        for (int i = 0; i < 16; i++)
            snprintf(strchr(text, 0), 4, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
                     uuid->value[i]);
    else
        return NVML_INVALID_ARGUMENT;
    return find(has_uuid, text, handle);
}

NVML_API int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **handle) {
    return find(has_address, address, handle);
}

NVML_API int nvmlDeviceGetHandleByPciBusId(const char *address, void **handle) {
    return find(has_address, address, handle);
}

NVML_API int nvmlDeviceGetName(void *handle, char *text, unsigned size) {
    Device device;
    int status = read_device(handle, text, &device);
    return status ? status : put_text(text, size, device.name);
}

NVML_API int nvmlDeviceGetUUID(void *handle, char *text, unsigned size) {
    Device device;
    int status = read_device(handle, text, &device);
    return status ? status : put_text(text, size, device.uuid);
}

/* Defines a function that reads a number of a device. */
#define NUMBER(function, type, value)                                                              \
    NVML_API int function(void *handle, type *result) {                                            \
        Device device;                                                                             \
        int status = read_device(handle, result, &device);                                         \
        if (status == NVML_SUCCESS)                                                                \
            *result = value;                                                                       \
        return status;                                                                             \
    }

NUMBER(nvmlDeviceGetIndex, unsigned, (unsigned)place_of(handle))
NUMBER(nvmlDeviceGetMinorNumber, unsigned, (unsigned)place_of(handle))
NUMBER(nvmlDeviceGetArchitecture, unsigned, device.major == 9 ? HOPPER : UNKNOWN_ARCHITECTURE)
NUMBER(nvmlDeviceGetComputeMode, int, 0)        /* any number of processes and threads */
NUMBER(nvmlDeviceGetVirtualizationMode, int, 0) /* none */
NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned, 0)
NUMBER(nvmlDeviceGetPowerUsage, unsigned, power_used)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, power_limit)
NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned, power_limit)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, power_limit)

NVML_API int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    Device device;
    int status = read_device(handle, major && minor ? major : NULL, &device);
    if (status == NVML_SUCCESS) {
        *major = device.major;
        *minor = device.minor;
    }
    return status;
}

NVML_API int nvmlDeviceSetComputeMode(void *handle, int mode) {
    Device device;
    int status = read_device(handle, handle, &device);
    if (status == NVML_SUCCESS && (mode < 0 || mode > 3))
        return NVML_INVALID_ARGUMENT;
    return status ? status : NVML_NO_PERMISSION;
}

NVML_API int nvmlDeviceSetPowerManagementLimit(void *handle, unsigned limit) {
    Device device;
    int status = read_device(handle, handle, &device);
    if (status == NVML_SUCCESS && !limit)
        return NVML_INVALID_ARGUMENT;
    return status ? status : NVML_NO_PERMISSION;
}

NVML_API int nvmlDeviceSetPowerManagementLimit_v2(void *handle, const void *limit) {
    Device device;
    int status = read_device(handle, limit, &device);
    return status ? status : NVML_NO_PERMISSION;
}

/* Devices compute on any processor that the system has. */
NVML_API int nvmlDeviceGetCpuAffinity(void *handle, unsigned words, unsigned long *set) {
    const unsigned bits = CHAR_BIT * sizeof *set;
    Device device;
    int status = read_device(handle, words ? set : NULL, &device);
    if (status != NVML_SUCCESS)
        return status;
    long processors = sysconf(_SC_NPROCESSORS_CONF);
    memset(set, 0, words * sizeof *set);
    for (unsigned i = 0; i < words * bits && i < processors; i++)
        set[i / bits] |= 1ul << i % bits;
    return status;
}

NVML_API int nvmlDeviceGetCpuAffinityWithinScope(void *handle, unsigned words, unsigned long *set,
                                                 unsigned scope) {
    return scope > 1 ? NVML_INVALID_ARGUMENT : nvmlDeviceGetCpuAffinity(handle, words, set);
}

/* All devices have access to each other, but not by NVLink. */
NVML_API int nvmlDeviceGetP2PStatus(void *first, void *second, int way, int *result) {
    Device device;
    int status = read_device(first, result, &device);
    if (status == NVML_SUCCESS)
        status = read_device(second, result, &device);
    if (status == NVML_SUCCESS && (first == second || way < 0 || way > LAST_WAY_TO_PEER))
        return NVML_INVALID_ARGUMENT;
    if (status == NVML_SUCCESS)
        *result = way == BY_NVLINK ? PEER_IS_NOT_SUPPORTED : PEER_IS_SUPPORTED;
    return status;
}

/* The call succeeds, and the status of each value says that it is not supported. */
NVML_API int nvmlDeviceGetFieldValues(void *handle, int count, Field *fields) {
    Device device;
    int status = read_device(handle, count > 0 ? fields : NULL, &device);
    for (int i = 0; status == NVML_SUCCESS && i < count; i++)
        fields[i].status = NVML_NOT_SUPPORTED;
    return status;
}

NVML_API int nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) {
    Device device;
    int status = read_device(handle, memory, &device);
    if (status == NVML_SUCCESS)
        *memory = (Memory){device.memory, device.memory - device.used, device.used};
    return status;
}

NVML_API int nvmlDeviceGetMemoryInfo_v2(void *handle, Memory2 *memory) {
    Device device;
    int status = read_device(handle, memory, &device);
    if (status == NVML_SUCCESS && memory->version != memory2_version)
        return NVML_ARGUMENT_VERSION_MISMATCH;
    if (status == NVML_SUCCESS)
        *memory =
            (Memory2){memory2_version, device.memory, 0, device.memory - device.used, device.used};
    return status;
}

NVML_API int nvmlDeviceGetUtilizationRates(void *handle, Utilization *rates) {
    Device device;
    int status = read_device(handle, rates, &device);
    if (status == NVML_SUCCESS) {
        rates->gpu = device.busy ? 100 : 0;
        rates->memory = device.memory ? (unsigned)(100 * device.used / device.memory) : 0;
    }
    return status;
}

NVML_API int nvmlDeviceGetPciInfo_v3(void *handle, Pci *pci) {
    Device device;
    int status = read_device(handle, pci, &device);
    if (status != NVML_SUCCESS)
        return status;
    memset(pci, 0, sizeof *pci); /* 0 is the number of no vendor */
    pci->bus = (unsigned)device.bus;
    write_address(&device, pci->legacy_address, sizeof pci->legacy_address, 4);
    write_address(&device, pci->address, sizeof pci->address, 8);
    return status;
}

NVML_API int nvmlDeviceGetPciInfo_v2(void *handle, Pci2 *pci) {
    Device device;
    int status = read_device(handle, pci, &device);
    if (status != NVML_SUCCESS)
        return status;
    memset(pci, 0, sizeof *pci);
    pci->bus = (unsigned)device.bus;
    write_address(&device, pci->address, sizeof pci->address, 4);
    return status;
}

/* The other functions. The C calling conventions allow them to ignore their arguments. */
#define NVML_NAME(symbol)                                                                          \
    NVML_API int symbol(void) { return nvml_ready() ? NVML_NOT_SUPPORTED : NVML_UNINITIALIZED; }
#include "nvml_names.def"

PyObject *PyModuleDef_Init(PyModuleDef *) __attribute__((weak));

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "cudadrv._nvml",
    .m_doc = "NVML for the devices of the software driver, opened by its path.",
};

PyMODINIT_FUNC PyInit__nvml(void) { return PyModuleDef_Init(&definition); }
