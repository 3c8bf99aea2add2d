/* A program that is linked with -lnvrtc. It prints the version of NVRTC. */
#include <stdio.h>

int nvrtcVersion(int *, int *);

int main(void) {
    int major = 0, minor = 0;
    printf("%d ", nvrtcVersion(&major, &minor));
    printf("%d.%d\n", major, minor);
    return 0;
}
