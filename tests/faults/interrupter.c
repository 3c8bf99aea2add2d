/* Makes SIGINT pending before the n-th bytecode that a thread runs. A function that the bytecode
 * calls then finds the signal, as if the signal had come during the call. */

#include <Python.h>
#include <frameobject.h>
#include <signal.h>

static long left, passed;

static int count(PyObject *self, PyFrameObject *frame, int what, PyObject *argument) {
    (void)self, (void)argument;
    if (what == PyTrace_CALL)
        return PyObject_SetAttrString((PyObject *)frame, "f_trace_opcodes", Py_True);
    if (what == PyTrace_OPCODE) {
        passed++;
        if (--left == 0)
            PyErr_SetInterruptEx(SIGINT);
    }
    return 0;
}

void begin_count(long interrupted) {
    left = interrupted;
    passed = 0;
    PyEval_SetTrace(count, NULL);
}

long end_count(void) {
    PyEval_SetTrace(NULL, NULL);
    return passed;
}
