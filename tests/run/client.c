/* A client of the driver API. Its arguments are the calls that it makes. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cuInit(unsigned), cuDeviceGetCount(int *), cuDriverGetVersion(int *);
int cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *), cuStreamCreate(void **, unsigned);
int cuMemAlloc_v2(unsigned long long *, size_t), cuCheckpointProcessLock(int, void *);

static void *context;
static unsigned long long address;

/* The program's destructor. It runs before the destructors of the libraries that it uses. */
int cuMemFree_v2(unsigned long long);
static int frees_late;
__attribute__((destructor)) static void free_late(void) {
    if (frees_late)
        cuMemFree_v2(address);
}

int main(int count, char **words) {
    for (int i = 1; i < count; i++) {
        int status = 0, number = 0;
        if (!strcmp(words[i], "init"))
            status = cuInit(0);
        else if (!strcmp(words[i], "devices"))
            status = cuDeviceGetCount(&number);
        else if (!strcmp(words[i], "version"))
            status = cuDriverGetVersion(&number);
        else if (!strcmp(words[i], "context"))
            status = cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
        else if (!strcmp(words[i], "alloc"))
            status = cuMemAlloc_v2(&address, 1000);
        else if (!strcmp(words[i], "stream"))
            status = cuStreamCreate(&context, 0);
        else if (!strcmp(words[i], "late"))
            frees_late = 1;
        else if (!strcmp(words[i], "many"))
            for (number = 0; number < 1000000; number++)
                status = cuCheckpointProcessLock(0, NULL);
        else if (!strcmp(words[i], "_exit"))
            _exit(5);
        else if (!strcmp(words[i], "kill"))
            raise(SIGKILL);
        else
            return 99;
        printf("%s %d %d\n", words[i], status, number);
        fflush(stdout);
    }
    return 3;
}
