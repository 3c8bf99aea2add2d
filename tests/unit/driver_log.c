/* The lines that cudadrv keeps of the driver's log. Prints the lines of each step. */

#include "cudadrv/driver_log.h"

#include <pthread.h>
#include <stdio.h>

static void hear(int level, const char *text) {
    cudadrv_hear(NULL, level, (char *)text, strlen(text));
}

static void tell(const char *step) {
    printf("%s:", step);
    for (int i = 0; i < cudadrv_log_count(); i++) {
        size_t length;
        const char *line = cudadrv_log_line(i, &length);
        printf(" %.*s", (int)(length > 8 ? 8 : length), line);
        if (length > 8) {
            printf("...%zu", length);
        }
    }
    printf("\n");
}

static void *other_thread(void *unused) {
    hear(0, "other");
    cudadrv_log_failure();
    tell("another thread");
    return unused;
}

int main(void) {
    tell("no failure");
    hear(0, "a");
    tell("a line without a failure");
    hear(1, "warning");
    hear(0, "b");
    cudadrv_log_failure();
    tell("a failure");
    pthread_t thread;
    pthread_create(&thread, NULL, other_thread, NULL);
    pthread_join(thread, NULL);
    tell("the first thread");
    hear(0, "c");
    tell("a line of the next failure");
    cudadrv_log_failure();
    tell("the next failure");
    cudadrv_log_failure();
    tell("a failure without lines");
    for (int i = 0; i < 11; i++) {
        char text[3];
        snprintf(text, sizeof text, "%d", i);
        hear(0, text);
    }
    cudadrv_log_failure();
    tell("many lines");
    char many[2000];
    memset(many, 'x', sizeof many);
    cudadrv_hear(NULL, 0, many, sizeof many);
    cudadrv_log_failure();
    tell("a long line");
    return 0;
}
