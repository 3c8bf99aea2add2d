/* Writes the records of trace.h to a file for Perfetto (https://perfetto.dev), while the program
 * runs.
 *
 * A thread empties the rings ten times a second, or when one is half full; a thread whose ring is
 * full empties it itself. So the file can be read up to a moment ago however the process ends.
 *
 * The file is a sequence of packets, as protocol buffers encode them. Names are written once, and
 * then have numbers ("iid"). Slices on one track must be nested, so whatever overlaps gets lanes:
 * tracks of the same name, which Perfetto shows as one.
 *
 * `lock` guards all of this file's state. Only cudadrv._trace includes this file. */

#ifndef CUDADRV_TRACE_FILE_H
#define CUDADRV_TRACE_FILE_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "trace.h"

enum {
    TRACE_LANES = 32,    /* most slices that overlap on a track; further ones are instants */
    TRACE_RUNS = 8,      /* most slices of operations of a stream that run at a time; the same */
    TRACE_ARROWS = 4,    /* most waits for one record of an event that get an arrow */
    TRACE_TEXT = 12000,  /* most bytes of a text: lengths of messages have two bytes */
    TRACE_OUT = 1 << 18, /* bytes that are collected before a write */
    TRACE_PACKET = 2 * TRACE_TEXT,
    TRACE_PERIOD = 100000000 /* nanoseconds between two looks at the rings */
};

/* Numbers of the fields of Perfetto's messages, and of their values. */
enum {
    PACKET_TIMESTAMP = 8,
    PACKET_SEQUENCE = 10,
    PACKET_EVENT = 11,
    PACKET_INTERNED = 12,
    PACKET_FLAGS = 13,
    PACKET_TRACK = 60,
    INTERNED_NAME = 2,
    INTERNED_KEY = 3,
    INTERNED_STRING = 29,
    TRACK_UUID = 1,
    TRACK_NAME = 2,
    TRACK_PROCESS = 3,
    TRACK_THREAD = 4,
    TRACK_PARENT = 5,
    TRACK_COUNTER = 8,
    COUNTER_UNIT = 3,
    UNIT_BYTES = 3,
    EVENT_NOTE = 4,
    EVENT_TYPE = 9,
    EVENT_NAME = 10,
    EVENT_TRACK = 11,
    EVENT_CATEGORY = 22,
    EVENT_OWN_NAME = 23,
    EVENT_VALUE = 30,
    EVENT_FLOW = 47,
    EVENT_FLOW_END = 48,
    SLICE_BEGIN = 1,
    SLICE_END = 2,
    INSTANT = 3,
    COUNTER = 4
};

/* Names that every trace begins with. */
enum trace_word {
    TRACE_NO_WORD,
    TRACE_RECORD_WORD,
    TRACE_WAIT_WORD,
    TRACE_KNOWN_WORD,
    TRACE_END_WORD,
    TRACE_FIRST_NAME = 16
};
enum trace_key {
    KEY_LINE = 1,
    KEY_STREAM,
    KEY_STATUS,
    KEY_TIMES,
    KEY_BYTES,
    KEY_USE,
    KEY_TEXT,
    KEY_END,
    KEY_EVENT,
    KEY_SLOT,
    KEY_NUMBER,
    KEY_TOOK,
    KEY_MOVED,
    TRACE_KEYS
};
static uint64_t trace_time(uint64_t ticks);

enum { TRACK_OF_PROCESS = 1, TRACK_OF_STREAMS, TRACK_OF_BUFFERS, TRACK_LIVE, TRACK_KEPT };

typedef struct trace_map {
    uint64_t *keys, *values; /* the key 0 is a free place */
    size_t size, count;
} trace_map;

/* A stream, or the memory of a buffer. */
typedef struct trace_lanes {
    uint64_t track;
    uint64_t lanes[TRACE_LANES]; /* their tracks; 0: not made yet */
    uint32_t busy;               /* bits of lanes that have an open slice */
    uint64_t runs[TRACE_RUNS];   /* of a stream: tracks on which its operations run */
    uint64_t until[TRACE_RUNS];  /* the end of the last slice on each */
    uint64_t string;             /* number of its name */
} trace_lanes;

typedef struct trace_open {
    uint64_t seq;
    trace_lanes *of;
    int lane;
} trace_open;

typedef struct trace_slot {
    trace_open *open;
    size_t count, size;
    uint64_t known, known_at; /* the host knows that operations up to this one are complete */
    uint64_t beyond;          /* the last operation that has an instant instead of a slice */
    uint64_t track;           /* that of the slot's stream */
} trace_slot;

static struct trace_file {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    int stops;
    int on;
    int error; /* errno of the first write that failed */
    int fd;
    uint64_t session; /* counts traces */
    uint64_t packets;
    uint64_t base_ticks, base_time; /* one moment, in both clocks */
    double scale;                   /* nanoseconds a tick */
    uint64_t tracks, names, strings, flows;
    trace_ring *rings;
    trace_slot *slots;
    size_t slot_count;
    trace_lanes **streams, **memories; /* by their numbers */
    size_t stream_count, memory_count;
    trace_map handles; /* numbers of streams, by the driver's handles */
    trace_map records; /* the first arrow of the last record of an event, and how many are used */
    uint32_t *names_of_operations;
    uint32_t *strings_of_sites, *sites;
    uint32_t *names_of_functions;
    char *out;
    size_t filled;
} trace_it = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER, .fd = -1};

__thread trace_ring *trace_mine;
trace_hooks trace_calls;

/* ---- bytes ---- */

static inline char *trace_varint(char *at, uint64_t value) {
    while (value > 127) {
        *at++ = (char)(value | 128);
        value >>= 7;
    }
    *at++ = (char)value;
    return at;
}

/* A time always has nine bytes, without a loop. */
static char *trace_time_at(char *at, unsigned field, uint64_t value) {
    *at++ = (char)(field << 3);
    for (int i = 0; i < 8; i++) {
        at[i] = (char)(value >> 7 * i | 128);
    }
    at[8] = (char)(value >> 56 & 127);
    return at + 9;
}

static inline char *trace_number(char *at, unsigned field, uint64_t value) {
    return trace_varint(trace_varint(at, field << 3), value);
}

static char *trace_fixed(char *at, unsigned field, uint64_t value) {
    at = trace_varint(at, field << 3 | 1);
    memcpy(at, &value, sizeof value); /* all processors of CUDA are little-endian */
    return at + sizeof value;
}

static char *trace_text(char *at, unsigned field, const char *text) {
    size_t size = strnlen(text, TRACE_TEXT);
    while (size && size == TRACE_TEXT && (text[size] & 0xc0) == 0x80) {
        size--; /* do not cut a character */
    }
    at = trace_varint(trace_varint(at, field << 3 | 2), size);
    memcpy(at, text, size);
    return at + size;
}

/* Begins a message inside another one. trace_close fills in its length, which has two bytes. */
static inline char *trace_open_message(char *at, unsigned field) {
    return trace_varint(at, field << 3 | 2) + 2;
}

static void trace_close_message(char *begin, const char *end) {
    const size_t size = (size_t)(end - begin);
    begin[-2] = (char)(size | 128);
    begin[-1] = (char)(size >> 7);
}

static void trace_flush(void) {
    const char *at = trace_it.out;
    size_t left = trace_it.filled;
    while (left && !trace_it.error) {
        const ssize_t written = write(trace_it.fd, at, left);
        if (written < 0 && errno != EINTR) {
            trace_it.error = errno;
        } else if (written > 0) {
            at += written;
            left -= (size_t)written;
        }
    }
    trace_it.filled = 0;
}

/* ---- packets ---- */

static inline char *trace_packet(char **begin) {
    if (trace_it.filled > TRACE_OUT) {
        trace_flush();
    }
    char *at = trace_open_message(trace_it.out + trace_it.filled, 1);
    *begin = at;
    /* The first packet clears what a reader knows of the names; all others need the names. */
    const char head[] = {PACKET_SEQUENCE << 3, 1, PACKET_FLAGS << 3, trace_it.packets++ ? 2 : 1};
    memcpy(at, head, sizeof head);
    return at + sizeof head;
}

static void trace_packet_end(char *begin, const char *at) {
    trace_close_message(begin, at);
    trace_it.filled = (size_t)(at - trace_it.out);
}

typedef struct trace_event {
    char *packet, *event, *at;
} trace_event;

static inline trace_event trace_event_begin(uint64_t time, int type, uint64_t track) {
    trace_event event;
    event.at = trace_time_at(trace_packet(&event.packet), PACKET_TIMESTAMP, time);
    event.at = event.event = trace_open_message(event.at, PACKET_EVENT);
    event.at = trace_number(event.at, EVENT_TYPE, (uint64_t)type);
    event.at = trace_number(event.at, EVENT_TRACK, track);
    return event;
}

static void trace_event_end(const trace_event *event) {
    trace_close_message(event->event, event->at);
    trace_packet_end(event->packet, event->at);
}

static void trace_name_event(trace_event *event, uint64_t name) {
    event->at = trace_number(event->at, EVENT_NAME, name);
}

enum { NOTE_KEY = 1, NOTE_UINT = 3, NOTE_INT = 4, NOTE_TEXT = 6, NOTE_STRING = 17 };

static inline void trace_note(trace_event *event, int key, unsigned field, uint64_t value) {
    char *begin = trace_open_message(event->at, EVENT_NOTE);
    event->at = trace_number(trace_number(begin, NOTE_KEY, (uint64_t)key), field, value);
    trace_close_message(begin, event->at);
}

static void trace_note_text(trace_event *event, int key, const char *text) {
    char *begin = trace_open_message(event->at, EVENT_NOTE);
    event->at = trace_text(trace_number(begin, NOTE_KEY, (uint64_t)key), NOTE_TEXT, text);
    trace_close_message(begin, event->at);
}

static void trace_note_line(trace_event *event, uint32_t site) {
    const uint32_t at = site % 0x8000;
    if (site && trace_it.sites[at] == site) {
        trace_note(event, KEY_LINE, NOTE_STRING, trace_it.strings_of_sites[at]);
    }
}

static void trace_intern(unsigned field, uint64_t iid, const char *text) {
    char *begin, *at = trace_packet(&begin);
    char *interned = trace_open_message(at, PACKET_INTERNED);
    char *message = trace_open_message(interned, field);
    at = trace_text(trace_number(message, 1, iid), 2, text);
    trace_close_message(message, at);
    trace_close_message(interned, at);
    trace_packet_end(begin, at);
}

static void trace_describe(uint64_t track, uint64_t parent, const char *name, int unit) {
    char *begin, *at = trace_packet(&begin);
    char *message = trace_open_message(at, PACKET_TRACK);
    at = trace_number(message, TRACK_UUID, track);
    if (parent) {
        at = trace_number(at, TRACK_PARENT, parent);
    }
    at = trace_text(at, TRACK_NAME, name);
    if (unit) {
        char *counter = trace_open_message(at, TRACK_COUNTER);
        at = trace_number(counter, COUNTER_UNIT, (uint64_t)unit);
        trace_close_message(counter, at);
    }
    trace_close_message(message, at);
    trace_packet_end(begin, at);
}

static void trace_describe_process(const char *name) {
    char *begin, *at = trace_packet(&begin);
    char *message = trace_open_message(at, PACKET_TRACK);
    at = trace_number(message, TRACK_UUID, TRACK_OF_PROCESS);
    char *process = trace_open_message(at, TRACK_PROCESS);
    at = trace_text(trace_number(process, 1, (uint64_t)getpid()), 6, name);
    trace_close_message(process, at);
    trace_close_message(message, at);
    trace_packet_end(begin, at);
}

static void trace_describe_thread(const trace_ring *ring, const char *name) {
    char *begin, *at = trace_packet(&begin);
    char *message = trace_open_message(at, PACKET_TRACK);
    at = trace_number(message, TRACK_UUID, ring->track);
    char *thread = trace_open_message(at, TRACK_THREAD);
    at = trace_number(trace_number(thread, 1, (uint64_t)getpid()), 2, ring->thread);
    if (name) {
        at = trace_text(at, 5, name);
    }
    trace_close_message(thread, at);
    trace_close_message(message, at);
    trace_packet_end(begin, at);
}

/* ---- tables ---- */

static uint64_t *trace_find(trace_map *map, uint64_t key) {
    size_t at = (key * UINT64_C(0x9e3779b97f4a7c15)) >> 20;
    while (map->size && map->keys[at % map->size] && map->keys[at % map->size] != key) {
        at++;
    }
    return map->size && map->keys[at % map->size] ? &map->values[at % map->size] : NULL;
}

static void trace_set(trace_map *map, uint64_t key, uint64_t value) {
    uint64_t *found = trace_find(map, key);
    if (found) {
        *found = value;
        return;
    }
    if (2 * map->count >= map->size) {
        const size_t size = map->size ? 2 * map->size : 64;
        trace_map larger = {calloc(size, 8), calloc(size, 8), size, 0};
        if (!larger.keys || !larger.values) {
            free(larger.keys);
            free(larger.values);
            return;
        }
        for (size_t i = 0; i < map->size; i++) {
            if (map->keys[i]) {
                trace_set(&larger, map->keys[i], map->values[i]);
            }
        }
        free(map->keys);
        free(map->values);
        *map = larger;
    }
    size_t at = (key * UINT64_C(0x9e3779b97f4a7c15)) >> 20;
    while (map->keys[at % map->size]) {
        at++;
    }
    map->keys[at % map->size] = key;
    map->values[at % map->size] = value;
    map->count++;
}

/* Grows an array of `*count` items to more than `index` items, which are 0. */
static int trace_grow(void *array, size_t *count, size_t index, size_t size) {
    void **items = array;
    if (index < *count) {
        return 1;
    }
    const size_t wanted = 2 * index + 16;
    char *larger = realloc(*items, wanted * size);
    if (!larger) {
        return 0;
    }
    memset(larger + *count * size, 0, (wanted - *count) * size);
    *items = larger;
    *count = wanted;
    return 1;
}

/* Returns the stream or memory with a number. If it is new, gives it a track. */
static trace_lanes *trace_lanes_of(trace_lanes ***all, size_t *count, uint64_t number,
                                   uint64_t parent, const char *name, const char *kind) {
    char made[40];
    if (!trace_grow(all, count, number, sizeof **all)) {
        return NULL;
    }
    trace_lanes *lanes = (*all)[number];
    if (!lanes) {
        lanes = calloc(1, sizeof *lanes);
        if (!lanes) {
            return NULL;
        }
        if (!name) {
            snprintf(made, sizeof made, "%s %llu", kind, (unsigned long long)number);
            name = made;
        }
        lanes->track = ++trace_it.tracks;
        lanes->string = ++trace_it.strings;
        (*all)[number] = lanes;
        trace_describe(lanes->track, parent, name, 0);
        trace_intern(INTERNED_STRING, lanes->string, name);
    }
    return lanes;
}

static trace_lanes *trace_stream(uint64_t number, const char *name) {
    return trace_lanes_of(&trace_it.streams, &trace_it.stream_count, number, TRACK_OF_STREAMS, name,
                          "Stream");
}

static trace_lanes *trace_memory_of(uint64_t number, const char *name) {
    return trace_lanes_of(&trace_it.memories, &trace_it.memory_count, number, TRACK_OF_BUFFERS,
                          name, "memory");
}

static trace_lanes *trace_stream_at(uint64_t handle) {
    const uint64_t *number = trace_find(&trace_it.handles, handle);
    return number ? trace_stream(*number, NULL) : NULL;
}

/* ---- records become events ---- */

static uint64_t trace_time(uint64_t ticks) {
    return trace_it.base_time +
           (uint64_t)((double)(int64_t)(ticks - trace_it.base_ticks) * trace_it.scale);
}

/* Writes an instant that ends the operations of a slot, up to `seq`, that have no slices. */
static void trace_end_beyond(size_t slot, int word, uint64_t seq, uint64_t time) {
    const uint64_t track = trace_it.slots[slot].track;
    trace_event event = trace_event_begin(time, INSTANT, track ? track : TRACK_OF_STREAMS);
    trace_name_event(&event, (uint64_t)word);
    trace_note(&event, KEY_SLOT, NOTE_UINT, slot);
    trace_note(&event, KEY_NUMBER, NOTE_UINT, seq);
    trace_event_end(&event);
}

/* Begins an instant instead of a slice. Its notes say which instant of trace_end_beyond is its end,
 * so that a reader can count it in full. The caller ends the event. */
static trace_event trace_begin_beyond(const trace_lanes *of, uint32_t slot, uint64_t seq,
                                      uint64_t time, uint64_t name) {
    if (slot < trace_it.slot_count) {
        trace_slot *in = &trace_it.slots[slot];
        if (seq <= in->known) { /* another thread has noted it before */
            trace_end_beyond(slot, TRACE_KNOWN_WORD, in->known, in->known_at);
        } else if (seq > in->beyond) {
            in->beyond = seq;
        }
    }
    trace_event event = trace_event_begin(time, INSTANT, of->track);
    trace_name_event(&event, name);
    trace_note(&event, KEY_SLOT, NOTE_UINT, slot);
    trace_note(&event, KEY_NUMBER, NOTE_UINT, seq);
    return event;
}

/* Begins a slice that ends when the host knows that operation `seq` of the slot is complete. If all
 * lanes are in use, the event becomes an instant. The caller ends the event. */
static trace_event trace_begin_lane(trace_lanes *of, uint32_t slot, uint64_t seq, uint64_t time,
                                    uint64_t name, const char *row) {
    const uint32_t free_lanes = ~of->busy;
    trace_slot *in;
    if (!free_lanes || !trace_grow(&trace_it.slots, &trace_it.slot_count, slot, sizeof *in)) {
        return trace_begin_beyond(of, slot, seq, time, name);
    }
    in = &trace_it.slots[slot];
    if (!trace_grow(&in->open, &in->size, in->count, sizeof *in->open)) {
        return trace_begin_beyond(of, slot, seq, time, name);
    }
    const int lane = __builtin_ctz(free_lanes);
    if (!of->lanes[lane]) {
        of->lanes[lane] = ++trace_it.tracks;
        trace_describe(of->lanes[lane], of->track, row, 0);
    }
    of->busy |= UINT32_C(1) << lane;
    in->open[in->count++] = (trace_open){seq, of, lane};
    trace_event event = trace_event_begin(time, SLICE_BEGIN, of->lanes[lane]);
    trace_name_event(&event, name);
    return event;
}

static void trace_end_lane(const trace_open *open, uint64_t time, const char *note) {
    trace_event event = trace_event_begin(time, SLICE_END, open->of->lanes[open->lane]);
    if (note) {
        trace_note_text(&event, KEY_END, note);
    }
    trace_event_end(&event);
    open->of->busy &= ~(UINT32_C(1) << open->lane);
}

/* Ends the slices of operations up to the one that is known to be complete. Operations of several
 * threads may come in another order than their numbers. */
static void trace_end_known(trace_slot *slot) {
    size_t kept = 0;
    for (size_t i = 0; i < slot->count; i++) {
        if (slot->open[i].seq <= slot->known) {
            trace_end_lane(&slot->open[i], slot->known_at, NULL);
        } else {
            slot->open[kept++] = slot->open[i];
        }
    }
    slot->count = kept;
}

static void trace_write_operation(const trace_ring *ring, const trace_record *record) {
    const uint64_t begin = trace_time(record->begin);
    const uint32_t name = trace_it.names_of_operations[record->name];
    trace_lanes *stream = trace_stream(record->number, NULL);
    const uint64_t flow = ++trace_it.flows;
    trace_event event = trace_event_begin(begin, SLICE_BEGIN, ring->track);
    trace_name_event(&event, name);
    trace_note_line(&event, record->site);
    if (stream) {
        trace_note(&event, KEY_STREAM, NOTE_STRING, stream->string);
    }
    if (record->seq) {
        event.at = trace_fixed(event.at, EVENT_FLOW, flow);
    } else {
        trace_note_text(&event, KEY_END,
                        record->mode ? "captured: a node of a graph, not queued" : "not queued");
        if (record->status > 0) {
            trace_note(&event, KEY_STATUS, NOTE_UINT, (uint64_t)record->status);
        }
    }
    trace_event_end(&event);
    event = trace_event_begin(trace_time(record->end), SLICE_END, ring->track);
    trace_event_end(&event);
    if (!record->seq || !stream) {
        return;
    }
    if (trace_grow(&trace_it.slots, &trace_it.slot_count, record->slot, sizeof(trace_slot))) {
        trace_it.slots[record->slot].track = stream->track;
    }
    event = trace_begin_lane(stream, record->slot, record->seq, begin, name,
                             "queued until known complete");
    trace_note_line(&event, record->site);
    event.at = trace_fixed(event.at, EVENT_FLOW_END, flow);
    trace_event_end(&event);
}

static void trace_write_borrow(const trace_record *record) {
    trace_lanes *memory = trace_memory_of(record->number, NULL);
    char bytes[48];
    if (!memory) {
        return;
    }
    trace_event event =
        trace_begin_lane(memory, record->slot, record->seq, trace_time(record->begin),
                         trace_it.names_of_operations[record->name], "borrows");
    trace_note(&event, KEY_USE, NOTE_STRING, (record->mode & 3) + 1u);
    snprintf(bytes, sizeof bytes, "%llu:%llu", (unsigned long long)record->first,
             (unsigned long long)record->second);
    trace_note_text(&event, KEY_BYTES, bytes);
    if (record->end) {
        trace_note(&event, KEY_MOVED, NOTE_UINT, record->end);
    }
    trace_note_line(&event, record->site);
    trace_event_end(&event);
}

/* An event is recorded: the arrows of later waits begin here. */
static void trace_write_record(const trace_record *record) {
    trace_lanes *stream = trace_stream_at(record->second);
    if (!stream) {
        return;
    }
    trace_event event = trace_event_begin(trace_time(record->end), INSTANT, stream->track);
    trace_name_event(&event, TRACE_RECORD_WORD);
    trace_note_line(&event, record->site);
    for (int i = 0; i < TRACE_ARROWS; i++) {
        event.at = trace_fixed(event.at, EVENT_FLOW, ++trace_it.flows);
    }
    trace_event_end(&event);
    trace_set(&trace_it.records, record->first,
              (trace_it.flows - TRACE_ARROWS + 1) << 8 | TRACE_ARROWS);
}

static void trace_write_wait(const trace_record *record) {
    trace_lanes *stream = trace_stream_at(record->second);
    uint64_t *arrows = trace_find(&trace_it.records, record->first);
    if (!stream) {
        return;
    }
    trace_event event = trace_event_begin(trace_time(record->end), INSTANT, stream->track);
    trace_name_event(&event, TRACE_WAIT_WORD);
    trace_note_line(&event, record->site);
    if (arrows && *arrows & 0xff) {
        event.at = trace_fixed(event.at, EVENT_FLOW_END, (*arrows >> 8) + (*arrows & 0xff) - 1);
        --*arrows;
    }
    trace_event_end(&event);
}

static int trace_is(const trace_record *record, const char *function);

static void trace_write_call(const trace_ring *ring, const trace_record *record) {
    trace_event event = trace_event_begin(trace_time(record->begin), SLICE_BEGIN, ring->track);
    trace_name_event(&event, trace_it.names_of_functions[record->name]);
    trace_note_line(&event, record->site);
    if (record->seq) {
        trace_note(&event, KEY_TIMES, NOTE_UINT, record->seq + 1);
    }
    if (record->status) {
        trace_note(&event, KEY_STATUS, NOTE_UINT, (uint64_t)record->status);
    }
    if (record->first) {
        trace_note(&event, KEY_EVENT, NOTE_UINT, record->first);
    }
    const trace_lanes *stream = record->second ? trace_stream_at(record->second) : NULL;
    if (stream) {
        trace_note(&event, KEY_STREAM, NOTE_STRING, stream->string);
    }
    trace_event_end(&event);
    event = trace_event_begin(trace_time(record->end), SLICE_END, ring->track);
    trace_event_end(&event);
    if (record->status == 0 && record->first) {
        if (trace_is(record, "cuEventRecord")) {
            trace_write_record(record);
        } else if (trace_is(record, "cuStreamWaitEvent")) {
            trace_write_wait(record);
        }
    }
}

static void trace_write_known(const trace_record *record) {
    if (trace_grow(&trace_it.slots, &trace_it.slot_count, record->slot, sizeof(trace_slot))) {
        trace_slot *slot = &trace_it.slots[record->slot];
        if (slot->known < record->seq) {
            if (slot->known < slot->beyond) {
                trace_end_beyond(record->slot, TRACE_KNOWN_WORD, record->seq,
                                 trace_time(record->begin));
            }
            slot->known = record->seq;
            slot->known_at = trace_time(record->begin);
            trace_end_known(slot);
        }
    }
}

/* Writes that an operation ran on the software driver. */
static void trace_write_run(const trace_record *record) {
    trace_lanes *stream = trace_stream(record->number, NULL);
    const uint64_t begin = trace_time(record->begin), end = trace_time(record->end);
    int lane = 0;
    while (stream && lane < TRACE_RUNS && stream->until[lane] > begin) {
        lane++;
    }
    if (!stream) {
        return;
    }
    if (lane == TRACE_RUNS) {
        trace_event event = trace_event_begin(begin, INSTANT, stream->track);
        trace_name_event(&event, trace_it.names_of_operations[record->name]);
        trace_note(&event, KEY_TOOK, NOTE_UINT, end - begin);
        trace_note_line(&event, record->site);
        trace_event_end(&event);
        return;
    }
    if (!stream->runs[lane]) {
        stream->runs[lane] = ++trace_it.tracks;
        trace_describe(stream->runs[lane], stream->track, "runs", 0);
    }
    stream->until[lane] = end;
    trace_event event = trace_event_begin(begin, SLICE_BEGIN, stream->runs[lane]);
    trace_name_event(&event, trace_it.names_of_operations[record->name]);
    trace_note_line(&event, record->site);
    trace_event_end(&event);
    event = trace_event_begin(end, SLICE_END, stream->runs[lane]);
    trace_event_end(&event);
}

static void trace_write_value(uint64_t time, uint64_t track, uint64_t value) {
    trace_event event = trace_event_begin(time, COUNTER, track);
    event.at = trace_number(event.at, EVENT_VALUE, value);
    trace_event_end(&event);
}

static void trace_introduce(trace_ring *ring, const char *name);

static void trace_write(trace_ring *ring, const trace_record *record) {
    if (record->begin < trace_it.base_ticks) {
        return; /* begun before this trace */
    }
    switch (record->kind) {
    case TRACE_OPERATION:
        trace_introduce(ring, NULL);
        trace_write_operation(ring, record);
        break;
    case TRACE_BORROW:
        trace_write_borrow(record);
        break;
    case TRACE_CALL:
        trace_introduce(ring, NULL);
        trace_write_call(ring, record);
        break;
    case TRACE_KNOWN:
        trace_write_known(record);
        break;
    case TRACE_RUN:
        trace_write_run(record);
        break;
    default:
        trace_write_value(trace_time(record->begin), TRACK_LIVE, record->first);
        trace_write_value(trace_time(record->begin), TRACK_KEPT, record->second);
    }
}

/* ---- rings ---- */

/* Gives the thread a track, with its name if that is known. The caller holds the lock. */
static void trace_introduce(trace_ring *ring, const char *name) {
    if (ring->session != trace_it.session) {
        ring->session = trace_it.session;
        ring->track = ++trace_it.tracks;
        trace_describe_thread(ring, name);
    }
}

static void trace_empty(trace_ring *ring) {
    const uint64_t head = __atomic_load_n(&ring->head, __ATOMIC_ACQUIRE);
    if (ring->tail == head) {
        return;
    }
    for (uint64_t at = ring->tail; at < head; at++) {
        if (trace_it.on && !trace_it.error) {
            trace_write(ring, &ring->records[at % TRACE_RECORDS]);
        }
    }
    __atomic_store_n(&ring->tail, head, __ATOMIC_RELEASE);
}

/* A thread notes its operation when its call has returned. Meanwhile another thread can note that
 * the operation is complete. So slices that are known to be complete are looked for again. */
static void trace_empty_all(void) {
    for (trace_ring *ring = trace_it.rings; ring; ring = ring->next) {
        trace_empty(ring);
    }
    for (size_t i = 0; i < trace_it.slot_count; i++) {
        trace_end_known(&trace_it.slots[i]);
    }
}

static pthread_key_t trace_key_of_ring;
static pthread_once_t trace_key_once = PTHREAD_ONCE_INIT;

static void trace_leave_ring(void *ring) {
    trace_mine = NULL;
    __atomic_store_n(&((trace_ring *)ring)->used, 0, __ATOMIC_RELEASE);
}

static void trace_make_key(void) { pthread_key_create(&trace_key_of_ring, trace_leave_ring); }

trace_ring *trace_new_ring(void) {
    trace_ring *ring;
    pthread_once(&trace_key_once, trace_make_key);
    pthread_mutex_lock(&trace_it.lock);
    for (ring = trace_it.rings; ring; ring = ring->next) {
        if (!__atomic_load_n(&ring->used, __ATOMIC_ACQUIRE)) {
            trace_empty(ring);
            break;
        }
    }
    if (!ring) {
        ring = calloc(1, sizeof *ring);
        if (ring) {
            ring->room = TRACE_RECORDS;
            ring->next = trace_it.rings;
            trace_it.rings = ring;
        }
    }
    if (ring) {
        ring->used = 1;
        ring->session = 0;
        ring->thread = (uint32_t)syscall(SYS_gettid);
        pthread_setspecific(trace_key_of_ring, ring);
    }
    pthread_mutex_unlock(&trace_it.lock);
    trace_mine = ring;
    return ring;
}

int trace_make_room(trace_ring *ring) {
    ring->room = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) + TRACE_RECORDS;
    if (ring->head == ring->room) {
        pthread_mutex_lock(&trace_it.lock);
        trace_empty_all();
        ring->room = ring->tail + TRACE_RECORDS;
        pthread_mutex_unlock(&trace_it.lock);
    }
    return 1;
}

void trace_wake(void) { pthread_cond_signal(&trace_it.wake); }

static void *trace_run(void *nothing) {
    pthread_mutex_lock(&trace_it.lock);
    while (!trace_it.stops) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += TRACE_PERIOD;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&trace_it.wake, &trace_it.lock, &until);
        trace_empty_all();
        trace_flush();
    }
    pthread_mutex_unlock(&trace_it.lock);
    return nothing;
}

/* ---- begin and end ---- */

/* Reads both clocks at one moment. Tries again if the thread was interrupted in between. */
static void trace_read_clocks(uint64_t *ticks, uint64_t *time) {
    uint64_t after;
    int tries = 100;
    do {
        *time = trace_nanoseconds();
        *ticks = trace_ticks();
        after = trace_nanoseconds();
    } while (after - *time > 500 && --tries);
}

static void trace_set_clock(void) {
    static double scale;
    trace_read_clocks(&trace_it.base_ticks, &trace_it.base_time);
    if (scale == 0) { /* measured once, for 5 ms: right to about 50 parts in a million */
        uint64_t ticks, time;
        do {
            trace_read_clocks(&ticks, &time);
        } while (time - trace_it.base_time < 5000000);
        scale = (double)(time - trace_it.base_time) / (double)(ticks - trace_it.base_ticks);
    }
    trace_it.scale = scale;
}

static void trace_free_map(trace_map *map) {
    free(map->keys);
    free(map->values);
    memset(map, 0, sizeof *map);
}

static void trace_free_lanes(trace_lanes **all, size_t count) {
    for (size_t i = 0; i < count; i++) {
        free(all[i]);
    }
    free(all);
}

static void trace_free(void) {
    for (size_t i = 0; i < trace_it.slot_count; i++) {
        free(trace_it.slots[i].open);
    }
    free(trace_it.slots);
    trace_free_lanes(trace_it.streams, trace_it.stream_count);
    trace_free_lanes(trace_it.memories, trace_it.memory_count);
    trace_free_map(&trace_it.handles);
    trace_free_map(&trace_it.records);
    free(trace_it.names_of_operations);
    free(trace_it.strings_of_sites);
    free(trace_it.sites);
    free(trace_it.names_of_functions);
    free(trace_it.out);
    trace_it.slots = NULL;
    trace_it.streams = trace_it.memories = NULL;
    trace_it.names_of_operations = trace_it.strings_of_sites = trace_it.sites = NULL;
    trace_it.names_of_functions = NULL;
    trace_it.out = NULL;
    trace_it.slot_count = trace_it.stream_count = trace_it.memory_count = 0;
}

static const char *const trace_keys[TRACE_KEYS] = {
    [KEY_LINE] = "line",   [KEY_STREAM] = "stream", [KEY_STATUS] = "status", [KEY_TIMES] = "times",
    [KEY_BYTES] = "bytes", [KEY_USE] = "use",       [KEY_TEXT] = "text",     [KEY_END] = "note",
    [KEY_EVENT] = "event", [KEY_SLOT] = "slot",     [KEY_NUMBER] = "number", [KEY_TOOK] = "took",
    [KEY_MOVED] = "moved",
};

/* The first strings of a file: what a borrow does, by its own_mode. */
static const char *const trace_uses[] = {"read", "write", "shared", "may write"};

static void trace_write_head(const char *process) {
    trace_describe_process(process);
    trace_describe(TRACK_OF_STREAMS, TRACK_OF_PROCESS, "streams", 0);
    trace_describe(TRACK_OF_BUFFERS, TRACK_OF_PROCESS, "buffers", 0);
    trace_describe(TRACK_LIVE, TRACK_OF_PROCESS, "live buffers", UNIT_BYTES);
    trace_describe(TRACK_KEPT, TRACK_OF_PROCESS, "kept by pools", UNIT_BYTES);
    for (int key = 1; key < TRACE_KEYS; key++) {
        trace_intern(INTERNED_KEY, (uint64_t)key, trace_keys[key]);
    }
    trace_intern(INTERNED_NAME, TRACE_RECORD_WORD, "record");
    trace_intern(INTERNED_NAME, TRACE_WAIT_WORD, "wait");
    trace_intern(INTERNED_NAME, TRACE_KNOWN_WORD, "known complete");
    trace_intern(INTERNED_NAME, TRACE_END_WORD, "end of the trace");
    for (unsigned mode = 0; mode < sizeof trace_uses / sizeof *trace_uses; mode++) {
        trace_intern(INTERNED_STRING, mode + 1, trace_uses[mode]);
    }
}

static void trace_name_functions(const char *const *functions, size_t count) {
    for (size_t i = 0; i < count; i++) {
        trace_it.names_of_functions[i] = (uint32_t)++trace_it.names;
        trace_intern(INTERNED_NAME, trace_it.names, functions[i]);
    }
}

/* Begins a trace, and the thread that writes it. `functions` are the names of the driver's
 * functions. Returns 0 or an errno. */
static int trace_begin(int fd, const char *process, const char *const *functions, size_t count) {
    sigset_t all, former;
    pthread_mutex_lock(&trace_it.lock);
    trace_empty_all(); /* `on` is 0, so records of threads that were late are dropped */
    trace_it.names_of_operations = calloc(1 << 16, sizeof(uint32_t));
    trace_it.strings_of_sites = calloc(0x8000, sizeof(uint32_t));
    trace_it.sites = calloc(0x8000, sizeof(uint32_t));
    trace_it.names_of_functions = calloc(count, sizeof(uint32_t));
    trace_it.out = malloc(TRACE_OUT + TRACE_PACKET);
    int error = trace_it.names_of_operations && trace_it.strings_of_sites && trace_it.sites &&
                        trace_it.names_of_functions && trace_it.out
                    ? 0
                    : ENOMEM;
    if (!error) {
        trace_set_clock();
        trace_it.session++;
        trace_it.packets = trace_it.filled = 0;
        trace_it.tracks = TRACK_KEPT;
        trace_it.names = TRACE_FIRST_NAME;
        trace_it.strings = sizeof trace_uses / sizeof *trace_uses;
        trace_it.error = trace_it.stops = 0;
        trace_it.fd = fd;
        trace_write_head(process);
        trace_name_functions(functions, count);
        sigfillset(&all); /* signals are for the program's threads */
        pthread_sigmask(SIG_SETMASK, &all, &former);
        error = pthread_create(&trace_it.thread, NULL, trace_run, NULL);
        pthread_sigmask(SIG_SETMASK, &former, NULL);
    }
    trace_it.on = !error;
    if (error) {
        trace_free();
    }
    pthread_mutex_unlock(&trace_it.lock);
    return error;
}

static void trace_flush_now(void) {
    pthread_mutex_lock(&trace_it.lock);
    if (trace_it.on) {
        trace_empty_all();
        trace_flush();
    }
    pthread_mutex_unlock(&trace_it.lock);
}

static void trace_end_open(uint64_t time) {
    for (size_t i = 0; i < trace_it.slot_count; i++) {
        trace_slot *slot = &trace_it.slots[i];
        for (size_t k = 0; k < slot->count; k++) {
            trace_end_lane(&slot->open[k], time, "not known complete when the trace ended");
        }
        slot->count = 0;
        if (slot->known < slot->beyond) {
            trace_end_beyond(i, TRACE_END_WORD, slot->beyond, time);
        }
    }
}

/* Ends the trace. Returns 0, or the errno of the write that failed. Does not close the file. */
static int trace_end(void) {
    pthread_mutex_lock(&trace_it.lock);
    trace_it.stops = 1;
    pthread_cond_signal(&trace_it.wake);
    pthread_mutex_unlock(&trace_it.lock);
    pthread_join(trace_it.thread, NULL);
    pthread_mutex_lock(&trace_it.lock);
    trace_empty_all();
    trace_end_open(trace_time(trace_ticks()));
    trace_flush();
    trace_it.on = 0;
    trace_it.fd = -1;
    trace_free();
    pthread_mutex_unlock(&trace_it.lock);
    return trace_it.error;
}

/* ---- names, which a thread writes before the records that use them ---- */

static void trace_name_operation(uint16_t operation, const char *name) {
    pthread_mutex_lock(&trace_it.lock);
    if (trace_it.on) {
        trace_it.names_of_operations[operation] = (uint32_t)++trace_it.names;
        trace_intern(INTERNED_NAME, trace_it.names, name);
    }
    pthread_mutex_unlock(&trace_it.lock);
}

static inline int trace_has_site(uint32_t site) {
    return !trace_it.on || trace_it.sites[site % 0x8000] == site;
}

static void trace_name_site(uint32_t site, const char *line) {
    pthread_mutex_lock(&trace_it.lock);
    if (trace_it.on) {
        trace_it.sites[site % 0x8000] = site;
        trace_it.strings_of_sites[site % 0x8000] = (uint32_t)++trace_it.strings;
        trace_intern(INTERNED_STRING, trace_it.strings, line);
    }
    pthread_mutex_unlock(&trace_it.lock);
}

static void trace_name_stream(uint64_t number, uint64_t handle, const char *name) {
    pthread_mutex_lock(&trace_it.lock);
    if (trace_it.on) {
        trace_stream(number, name);
        trace_set(&trace_it.handles, handle, number);
    }
    pthread_mutex_unlock(&trace_it.lock);
}

static void trace_name_memory(uint64_t number, const char *name) {
    pthread_mutex_lock(&trace_it.lock);
    if (trace_it.on) {
        trace_memory_of(number, name);
    }
    pthread_mutex_unlock(&trace_it.lock);
}

static inline int trace_has_thread(void) {
    trace_ring *ring = trace_ring_of_thread();
    return !ring || ring->session == trace_it.session;
}

static void trace_name_thread(const char *name) {
    trace_ring *ring = trace_ring_of_thread();
    pthread_mutex_lock(&trace_it.lock);
    if (ring && trace_it.on) {
        trace_introduce(ring, name);
    }
    pthread_mutex_unlock(&trace_it.lock);
}

/* Writes a refusal with its whole text, at once. */
static void trace_refusal(const char *name, const char *text, uint32_t site) {
    trace_ring *ring = trace_ring_of_thread();
    pthread_mutex_lock(&trace_it.lock);
    if (ring && trace_it.on) {
        trace_introduce(ring, NULL);
        trace_event event = trace_event_begin(trace_time(trace_ticks()), INSTANT, ring->track);
        event.at = trace_text(event.at, EVENT_OWN_NAME, name);
        event.at = trace_text(event.at, EVENT_CATEGORY, "refusal");
        trace_note_text(&event, KEY_TEXT, text);
        trace_note_line(&event, site);
        trace_event_end(&event);
    }
    pthread_mutex_unlock(&trace_it.lock);
}

/* The writing thread does not exist in a forked child, and may have held the lock. */
static void trace_enter_child(void) {
    pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    trace_it.lock = fresh;
    trace_it.on = 0;
    trace_it.fd = -1;
    cudadrv_the_table.slowly &= ~CUDADRV_TRACES;
    own_listen(&cudadrv_the_engine, NULL, cudadrv_the_engine.learned);
}

static void trace_add_child(void) { pthread_atfork(NULL, NULL, trace_enter_child); }

/* Call this before the first trace. */
static void trace_watch_forks(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, trace_add_child);
}

#endif
