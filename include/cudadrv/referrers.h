/* Finds out what refers to an array: Python names and containers, or something that may hold a
 * pointer.
 *
 * In NumPy every plain view refers to the first array over the memory. A search starts at that
 * array. It counts the references to the array and to its plain views that come from places
 * which hold nothing but references: the variables of this thread's running functions, and
 * everything that can be reached from these variables through plain containers and attributes.
 * All other references belong to something else (a memoryview, a tensor, a masked array, a call
 * that is running in another thread), which may have kept the address.
 *
 * It is safe not to search some place: then more references count as belonging to something else.
 * It would be an error to count a reference twice, or to count a reference of an object that also
 * keeps an address.
 *
 * Only cudadrv._buffers includes this file. The caller holds the GIL and has disabled the
 * garbage collector; nothing in this file runs Python code. */

#ifndef CUDADRV_REFERRERS_H
#define CUDADRV_REFERRERS_H

#include <Python.h>
#include <frameobject.h>
#include <stdlib.h>
/* Up to Python 3.12, only the fields of a frame give access to the variables of a running function
 * without a copy: `frame.f_locals` is a copy that keeps the variables' values alive. From 3.14 on,
 * only these fields tell which variables, and which operands of a running call, borrow their
 * references. */
#if PY_VERSION_HEX < 0x030D0000 || PY_VERSION_HEX >= 0x030E0000
#define REF_FIELDS 1
#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#if PY_VERSION_HEX >= 0x030E0000
#include <internal/pycore_interpframe.h>
#endif
#include <internal/pycore_frame.h>
#else
#define REF_FIELDS 0
#endif

enum {
    REF_STOP = 1,
    REF_LIMIT = 1 << 17, /* limit of the references that one search visits */
    /* The search continues with the next function after about this many references of one
     * function. */
    REF_EACH = 1 << 11,
    REF_NAMES = 6
};

/* The following variables are set when cudadrv._buffers is imported. */
static PyTypeObject *ref_ndarray;
static traverseproc ref_python_class; /* the tp_traverse that all classes written in Python have */
static PyObject *ref_containers;      /* a tuple of types that hold only references */
/* A tuple of attribute names. An object that has one of these attributes may keep an address. */
static PyObject *ref_capturing;
static PyObject *ref_base; /* the string "base" */

typedef struct {
    PyObject *object; /* an array, a container or a frame; NULL if the entry is free */
    Py_ssize_t found; /* number of references found, if the object is an array */
    int is_array;
} ref_entry;

typedef struct {
    PyObject *hidden;   /* the first array over the memory */
    Py_ssize_t missing; /* references to the known arrays that are not found yet */
    ref_entry *entries; /* hash table of all known objects; its size is a power of two */
    size_t size, used;
    PyObject **queue; /* known containers, in the order in which they were found */
    size_t queued, room;
    size_t searched; /* number of containers in the queue that have been searched */
    size_t visits;
    int names_hidden; /* a name or container refers to the hidden array itself */
} ref_search;

/* Returns the entry of an object. If the object has none, returns the free entry where it belongs;
 * the table must have one. */
static ref_entry *ref_place_of(const ref_search *search, const PyObject *object) {
    size_t place = ((size_t)object >> 4) * 0x9E3779B97F4A7C15u >> 20;
    for (;; place++) {
        ref_entry *entry = &search->entries[place & (search->size - 1)];
        if (!entry->object || entry->object == object) {
            return entry;
        }
    }
}

static int ref_grow(ref_search *search) {
    ref_search larger = *search;
    larger.size = search->size ? 2 * search->size : 64;
    larger.entries = calloc(larger.size, sizeof *larger.entries);
    if (!larger.entries) {
        return -1;
    }
    for (size_t i = 0; i < search->size; i++) {
        if (search->entries[i].object) {
            *ref_place_of(&larger, search->entries[i].object) = search->entries[i];
        }
    }
    free(search->entries);
    *search = larger;
    return 0;
}

/* Returns the entry of an object, and adds the object if it is new. Returns NULL if malloc fails.
 * The pointer becomes invalid when another object is added. */
static ref_entry *ref_entry_of(ref_search *search, PyObject *object) {
    ref_entry *entry = search->size ? ref_place_of(search, object) : NULL;
    if (entry && entry->object) {
        return entry;
    }
    if (2 * search->used >= search->size && ref_grow(search) < 0) {
        return NULL;
    }
    entry = ref_place_of(search, object);
    entry->object = object;
    search->used++;
    return entry;
}

/* Adds an object. Returns 1 if it is new, 0 if it was seen before, -1 if malloc fails. */
static int ref_is_new(ref_search *search, void *object) {
    size_t before = search->used;
    return ref_entry_of(search, object) ? search->used != before : -1;
}

static int ref_is_ours(const ref_search *search, PyObject *object) {
    if (Py_TYPE(object) != ref_ndarray) {
        return 0;
    }
    if (object == search->hidden) {
        return 1;
    }
    PyObject *base = PyObject_GetAttr(object, ref_base);
    Py_XDECREF(base);
    return base == search->hidden;
}

/* Counts a reference to one of the arrays. Returns REF_STOP if all references are found now, -1 if
 * malloc fails, and otherwise 0. */
static int ref_count(ref_search *search, PyObject *array) {
    ref_entry *entry = ref_entry_of(search, array);
    if (!entry) {
        return -1;
    }
    if (!entry->is_array) {
        entry->is_array = 1;
        if (array != search->hidden) {
            /* The references to this view must be found, too. Its own reference to the hidden array
             * counts as found. */
            search->missing += Py_REFCNT(array) - 1;
            ref_entry_of(search, search->hidden)->found++;
        }
    }
    search->names_hidden |= array == search->hidden;
    entry->found++;
    return --search->missing == 0 ? REF_STOP : 0;
}

static int ref_has_capturing_type(PyTypeObject *type) {
    for (Py_ssize_t i = 0; i < REF_NAMES; i++) {
        if (_PyType_Lookup(type, PyTuple_GET_ITEM(ref_capturing, i))) {
            return 1;
        }
    }
    return 0;
}

/* Returns whether an object holds nothing but references, all of which its tp_traverse visits. */
static int ref_is_container(PyObject *object) {
    PyTypeObject *type = Py_TYPE(object);
    if (!type->tp_traverse || !PyObject_IS_GC(object)) {
        return 0;
    }
    PyTypeObject *base = type;
    while (base->tp_traverse == ref_python_class && base->tp_base) {
        base = base->tp_base;
    }
    int plain = base == &PyBaseObject_Type;
    for (Py_ssize_t i = 0; !plain && i < PyTuple_GET_SIZE(ref_containers); i++) {
        plain = (PyObject *)base == PyTuple_GET_ITEM(ref_containers, i);
    }
    return plain && (base == type || !ref_has_capturing_type(type));
}

static int ref_queue(ref_search *search, PyObject *container) {
    int is_new = ref_is_new(search, container);
    if (is_new <= 0) {
        return is_new;
    }
    if (search->queued == search->room) {
        size_t room = search->room ? 2 * search->room : 64;
        PyObject **queue = realloc(search->queue, room * sizeof *queue);
        if (!queue) {
            return -1;
        }
        search->queue = queue;
        search->room = room;
    }
    search->queue[search->queued++] = container;
    return 0;
}

/* Visits a reference that a container holds. This is a visitproc, to be passed to tp_traverse. */
static int ref_visit(PyObject *object, void *argument) {
    ref_search *search = argument;
    if (++search->visits > REF_LIMIT) {
        return REF_STOP;
    }
    if (ref_is_ours(search, object)) {
        return ref_count(search, object);
    }
#if REF_FIELDS
    if (PyFunction_Check(object)) { /* skip its globals, which lead everywhere */
        PyObject *closure = PyFunction_GET_CLOSURE(object);
        return closure ? ref_queue(search, closure) : 0;
    }
    if (PyCell_Check(object)) {
        int is_new = ref_is_new(search, object);
        PyObject *content = is_new > 0 ? PyCell_GET(object) : NULL;
        return is_new < 0 ? -1 : content ? ref_visit(content, search) : 0;
    }
#endif
    return ref_is_container(object) ? ref_queue(search, object) : 0;
}

static int ref_sees_ours(PyObject *object, void *search) { return ref_is_ours(search, object); }

/* Returns whether a dict has one of the names in ref_capturing. `dict` may be NULL. */
static int ref_has_capturing_key(PyObject *dict) {
    for (Py_ssize_t i = 0; dict && i < REF_NAMES; i++) {
        if (PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(ref_capturing, i))) {
            return 1;
        }
    }
    return 0;
}

static int ref_visit_all(ref_search *search, PyObject *container) {
    traverseproc traverse = Py_TYPE(container)->tp_traverse;
    int is_dict = PyDict_Check(container), has_attributes = traverse == ref_python_class;
    /* Check the names only if the container refers to one of the arrays, because the check creates
     * a dict of the attributes. */
    if ((is_dict || has_attributes) && traverse(container, ref_sees_ours, search)) {
        PyObject *dict = has_attributes ? PyObject_GenericGetDict(container, NULL) : NULL;
        int captures = ref_has_capturing_key(dict) || (is_dict && ref_has_capturing_key(container));
        Py_XDECREF(dict);
        PyErr_Clear(); /* PyObject_GenericGetDict fails if there is no dict */
        if (captures) {
            return 0;
        }
    }
    return traverse(container, ref_visit, search);
}

#if REF_FIELDS

typedef _PyInterpreterFrame ref_frame;

static ref_frame *ref_next_frame(ref_frame *frame) { return frame->previous; }

static ref_frame *ref_frame_of(PyFrameObject *frame) { return frame->f_frame; }

#if PY_VERSION_HEX >= 0x030E0000

static ref_frame *ref_first_frame(void) { return PyThreadState_Get()->current_frame; }

static _PyStackRef *ref_operands_of(ref_frame *frame) {
    return frame->localsplus + _PyFrame_GetCode(frame)->co_nlocalsplus;
}

static int ref_is_borrowed(const ref_search *search, _PyStackRef reference) {
    return !PyStackRef_IsTaggedInt(reference) && !PyStackRef_RefcountOnObject(reference) &&
           ref_is_ours(search, PyStackRef_AsPyObjectBorrow(reference));
}

/* Visits the operands of the running calls. An array that is an operand through a borrowed
 * reference must not be emptied: for each of these, one more reference counts as missing, which the
 * search cannot find. */
static int ref_visit_operands(ref_search *search) {
    for (ref_frame *frame = ref_first_frame(); frame; frame = ref_next_frame(frame)) {
        _PyStackRef *at = _PyFrame_IsIncomplete(frame) ? NULL : ref_operands_of(frame);
        for (; at && at < frame->stackpointer; at++) {
            if (PyStackRef_IsNull(*at) || !ref_is_borrowed(search, *at)) {
                continue;
            }
            ref_entry *entry = ref_entry_of(search, PyStackRef_AsPyObjectBorrow(*at));
            if (!entry) {
                return -1;
            }
            entry->found--;
            search->missing++;
        }
    }
    return 0;
}

/* Visits the variables of a function that hold a reference of their own. A parameter may borrow the
 * reference of a variable of the caller. */
static int ref_visit_variables(ref_search *search, ref_frame *frame) {
    /* A frame that has ended has no variables, and its stack pointer says so. */
    _PyStackRef *end = ref_operands_of(frame);
    end = end < frame->stackpointer ? end : frame->stackpointer;
    int stop = 0;
    for (_PyStackRef *at = frame->localsplus; !stop && at < end; at++) {
        if (!PyStackRef_IsNull(*at) && !ref_is_borrowed(search, *at)) {
            stop = ref_visit(PyStackRef_AsPyObjectBorrow(*at), search);
        }
    }
    return stop;
}

#else

static ref_frame *ref_first_frame(void) { return PyThreadState_Get()->cframe->current_frame; }

/* In these versions, operands own their references, which count as missing without a visit. */
static int ref_visit_operands(ref_search *search) {
    (void)search;
    return 0;
}

static int ref_visit_variables(ref_search *search, ref_frame *frame) {
    int stop = 0;
    for (int i = 0; !stop && i < frame->f_code->co_nlocalsplus; i++) {
        stop = frame->localsplus[i] ? ref_visit(frame->localsplus[i], search) : 0;
    }
    return stop;
}

#endif

static int ref_visit_frame(ref_search *search, ref_frame *frame) {
    int stop = _PyFrame_IsIncomplete(frame) ? 0 : ref_is_new(search, frame);
    if (stop <= 0) {
        return stop;
    }
    stop = ref_visit_variables(search, frame);
    if (!stop && frame->f_locals) { /* the dict of a module or class, or made by locals() */
        stop = ref_visit(frame->f_locals, search);
    }
    return stop;
}

static int ref_visit_globals(ref_search *search, ref_frame *frame) {
    return _PyFrame_IsIncomplete(frame) ? 0 : ref_visit(frame->f_globals, search);
}

#else

typedef PyFrameObject ref_frame;

static ref_frame *ref_first_frame(void) { return PyEval_GetFrame(); }

static ref_frame *ref_next_frame(ref_frame *frame) {
    ref_frame *next = PyFrame_GetBack(frame);
    Py_XDECREF(next); /* `next` stays valid, because the running function keeps it alive */
    return next;
}

static ref_frame *ref_frame_of(PyFrameObject *frame) { return frame; }

/* Visits the function's own variables. Variables of enclosing functions are counted in the
 * frames of those functions, because a cell that several frames share holds one reference. */
static int ref_visit_variables(ref_search *search, PyObject *variables, PyCodeObject *code) {
    PyObject *free_names = PyCode_GetFreevars(code);
    PyObject *own = PyDict_New();
    PyObject **values = malloc((size_t)(code->co_nlocalsplus + 1) * sizeof *values);
    PyObject *name, *value;
    Py_ssize_t at = 0, count = 0;
    int stop = free_names && own && values && PyDict_Update(own, variables) == 0 ? 0 : -1;
    while (!stop && count < code->co_nlocalsplus && PyDict_Next(own, &at, &name, &value)) {
        if (PySequence_Contains(free_names, name) == 0) {
            values[count++] = value;
        }
    }
    Py_XDECREF(own); /* the frame keeps the values alive; these references must not count */
    Py_XDECREF(free_names);
    for (Py_ssize_t i = 0; !stop && i < count; i++) {
        stop = ref_visit(values[i], search);
    }
    free(values);
    return stop;
}

/* In these versions, operands own their references, which count as missing without a visit. */
static int ref_visit_operands(ref_search *search) {
    (void)search;
    return 0;
}

static int ref_visit_frame(ref_search *search, ref_frame *frame) {
    int stop = ref_is_new(search, frame);
    if (stop <= 0) {
        return stop;
    }
    PyCodeObject *code = PyFrame_GetCode(frame);
    PyObject *variables = PyFrame_GetLocals(frame);
    if (!variables) {
        stop = -1;
    } else if (code->co_flags & CO_OPTIMIZED) {
        stop = ref_visit_variables(search, variables, code);
    } else {
        stop = ref_visit(variables, search);
    }
    Py_DECREF(code);
    Py_XDECREF(variables);
    return stop;
}

static int ref_visit_globals(ref_search *search, ref_frame *frame) {
    PyObject *globals = PyFrame_GetGlobals(frame);
    int stop = ref_visit(globals, search);
    Py_DECREF(globals);
    return stop;
}

#endif

/* Searches queued containers until it has visited about `visits` more references. */
static int ref_search_on(ref_search *search, size_t visits) {
    size_t end = search->visits + visits;
    int stop = 0;
    while (!stop && search->searched < search->queued && search->visits < end) {
        stop = ref_visit_all(search, search->queue[search->searched++]);
    }
    return stop;
}

/* Visits the variables of all running functions, and then their globals. The innermost functions
 * come first, because most references are there, and the outer functions of a large program may
 * reach more references than the limit. */
static int ref_visit_everything(ref_search *search, PyObject *array, PyObject *traceback) {
    int stop = ref_visit_operands(search);
    stop = stop ? stop : ref_count(search, array); /* count the caller's own reference */
    /* Visit the functions that ended by an exception. */
    for (PyObject *at = traceback; at && PyTraceBack_Check(at) && !stop;
         at = (PyObject *)((PyTracebackObject *)at)->tb_next) {
        stop = ref_visit_frame(search, ref_frame_of(((PyTracebackObject *)at)->tb_frame));
    }
    for (ref_frame *frame = ref_first_frame(); frame && !stop; frame = ref_next_frame(frame)) {
        stop = ref_visit_frame(search, frame);
        stop = stop ? stop : ref_search_on(search, REF_EACH);
    }
    for (ref_frame *frame = ref_first_frame(); frame && !stop; frame = ref_next_frame(frame)) {
        stop = ref_visit_globals(search, frame);
    }
    return stop ? stop : ref_search_on(search, REF_LIMIT);
}

/* Appends to `found` each array of which all references were found. The hidden array keeps the
 * memory alive for the others, so it is appended only if no reference is missing at all. The caller
 * holds one reference to the hidden array and one to `array`. Returns -1 with an exception set on
 * failure. */
static int ref_find(PyObject *hidden, PyObject *array, PyObject *traceback, PyObject *found) {
    ref_search search = {.hidden = hidden, .missing = Py_REFCNT(hidden) - 1};
    ref_entry *entry = ref_entry_of(&search, hidden);
    int stop = -1;
    if (entry) {
        entry->found = 1;
        entry->is_array = 1;
        stop = ref_visit_everything(&search, array, traceback);
    }
    for (size_t i = 0; stop >= 0 && i < search.size; i++) {
        entry = &search.entries[i];
        if (entry->is_array && Py_REFCNT(entry->object) == entry->found &&
            (entry->object != hidden || (search.names_hidden && !search.missing)) &&
            PyList_Append(found, entry->object) < 0) {
            stop = -1;
        }
    }
    free(search.entries);
    free(search.queue);
    if (stop < 0 && !PyErr_Occurred()) {
        PyErr_NoMemory();
    }
    return stop < 0 ? -1 : 0;
}

#endif
