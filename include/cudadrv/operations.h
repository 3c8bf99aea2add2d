/* The operations: what messages call them, and which node of a graph a capture makes of them.
 *
 * An operation's number is its place in this list. Launches of kernels and operations of other
 * projects get more numbers when the program runs. cudadrv/_names.pxd declares the numbers for
 * Cython. */

#ifndef CUDADRV_OPERATIONS_H
#define CUDADRV_OPERATIONS_H

enum cudadrv_node {
    OTHER_NODE, /* it is not known which kind of node the driver has made */
    COPY_NODE,
    FILL_NODE,
    LAUNCH_NODE,
    CALL_NODE,
    SET_NODE,  /* sets a signal */
    WAIT_NODE, /* waits for a signal */
    NO_NODE    /* a captured stream refuses the operation */
};

#define CUDADRV_OPERATIONS(OPERATION)                                                              \
    OPERATION(COPY_FROM, "copy_from", NO_NODE)                                                     \
    OPERATION(COPY_TO, "copy_to", NO_NODE)                                                         \
    OPERATION(COPY_FROM_ASYNC, "copy_from_async", COPY_NODE)                                       \
    OPERATION(COPY_TO_ASYNC, "copy_to_async", COPY_NODE)                                           \
    OPERATION(ARRAY_FROM_ASYNC, "copy_from_async", OTHER_NODE) /* copies of arrays */              \
    OPERATION(ARRAY_TO_ASYNC, "copy_to_async", OTHER_NODE)                                         \
    OPERATION(COPY_BATCH, "copy_batch", NO_NODE)                                                   \
    OPERATION(COPY_OF_BATCH, "copy_batch", COPY_NODE) /* one of its copies, in a capture */        \
    OPERATION(FILL, "fill", NO_NODE)                                                               \
    OPERATION(FILL_ASYNC, "fill_async", FILL_NODE)                                                 \
    OPERATION(FILL_BOX, "fill_async", OTHER_NODE) /* of a box, in a capture */                     \
    OPERATION(CALL, "call", NO_NODE)                                                               \
    OPERATION(CAPTURED_CALL, "call", CALL_NODE)                                                    \
    OPERATION(SET, "set", NO_NODE)                                                                 \
    OPERATION(CAPTURED_SET, "set", SET_NODE)                                                       \
    OPERATION(WAIT, "wait", NO_NODE) /* for a number that cudadrv does not see being set */        \
    OPERATION(CAPTURED_WAIT, "wait", WAIT_NODE) /* for a number that is set outside the graph */   \
    OPERATION(ALLOCATION, "its allocation", NO_NODE)                                               \
    OPERATION(RELEASE, "close", NO_NODE)                                                           \
    OPERATION(LEND, "lend", OTHER_NODE) /* a loan in a capture; others are refused */              \
    OPERATION(IMPORT, "its import", NO_NODE)                                                       \
    OPERATION(GIVE_BACK, "give_back", NO_NODE)                                                     \
    OPERATION(SHARE, "share", NO_NODE)                                                             \
    OPERATION(OPENING, "open", NO_NODE)                                                            \
    OPERATION(ACCEPT, "accept", NO_NODE)                                                           \
    OPERATION(PREFETCH, "prefetch", NO_NODE)                                                       \
    OPERATION(PREFETCH_BATCH, "prefetch_batch", NO_NODE)                                           \
    OPERATION(DISCARD, "discard", NO_NODE)                                                         \
    OPERATION(DISCARD_AND_PREFETCH, "discard_and_prefetch", NO_NODE)                               \
    OPERATION(DISCARD_BATCH, "discard_batch", NO_NODE)                                             \
    OPERATION(ATTACH, "attach", NO_NODE)                                                           \
    OPERATION(TO, "to", NO_NODE)                                                                   \
    OPERATION(OFFLOAD, "offload", NO_NODE)                                                         \
    OPERATION(CONSTANT, "constant", NO_NODE)                                                       \
    OPERATION(UPLOAD, "upload", NO_NODE)                                                           \
    OPERATION(LAUNCH, "a launch", LAUNCH_NODE)                                                     \
    OPERATION(CUSTOM, "a custom operation", OTHER_NODE)

#define CUDADRV_NUMBER(number, name, node) number,
enum cudadrv_operation { CUDADRV_OPERATIONS(CUDADRV_NUMBER) CUDADRV_OPERATION_COUNT };
#undef CUDADRV_NUMBER

typedef struct cudadrv_operation_row {
    const char *name;
    enum cudadrv_node node;
} cudadrv_operation_row;

static inline cudadrv_operation_row cudadrv_operation_at(unsigned number) {
#define CUDADRV_ROW(number, name, node) {name, node},
    static const cudadrv_operation_row rows[] = {CUDADRV_OPERATIONS(CUDADRV_ROW)};
#undef CUDADRV_ROW
    return rows[number];
}

#endif
