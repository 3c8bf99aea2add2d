"""In steady state on one stream, a check allocates no memory. Every allocation in C is counted."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from limits import PATIENCE

INCLUDE = Path(__file__).resolve().parents[2] / "include"
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>

static unsigned long allocations;
static void *counted(void *memory) { return allocations++, memory; }
#define malloc(size) counted(malloc(size))
#define calloc(count, size) counted(calloc(count, size))
#define realloc(memory, size) counted(realloc(memory, size))

#include "cudadrv/ownership.h"

static own_engine engine;
static own_domain domain;

static void issue(own_stream *stream, own_memory *source, own_memory *target, uint64_t at) {
    own_access accesses[2] = {
        {.memory = source, .start = at, .stop = at + 8, .mode = OWN_READ},
        {.memory = target, .start = at, .stop = at + 8, .mode = OWN_WRITE},
    };
    own_request request = {.stream = stream, .accesses = accesses, .count = 2};
    if (own_begin(&engine, &request, NULL, 0, 0) != OWN_OK) {
        puts("refused");
        exit(1);
    }
    own_settle(&engine, &request, NULL, 0);
    own_snapshot_drop(&engine, &request.issued);
}

static void step(own_stream *stream, own_memory *source, own_memory *target, own_event *event) {
    for (uint64_t at = 0; at < 64; at += 8) {
        issue(stream, source, target, at);
    }
    own_record(&engine, stream, event);
    own_wait(&engine, stream, &event->snapshot);
    own_export view;
    own_conflict conflict;
    own_access host = {.memory = source, .stop = 64, .mode = OWN_READ};
    if (own_export_open(&engine, &host, 0, &view, &conflict) == OWN_OK) {
        own_export_close(&engine, &view);
    }
}

int main(void) {
    own_engine_prepare(&engine);
    own_domain_open(&engine, &domain, 0);
    own_stream *stream = own_stream_open(&engine, &domain, OWN_NON_BLOCKING);
    own_memory source, target;
    own_event event = {.recorded = 0};
    own_memory_prepare(&source, 64);
    own_memory_prepare(&target, 64);
    for (int i = 0; i < 10; i++) {
        step(stream, &source, &target, &event);
    }
    unsigned long before = allocations;
    for (int i = 0; i < 10000; i++) {
        step(stream, &source, &target, &event);
        if (i % 100 == 0) {
            own_snapshot now;
            own_snapshot_take(&engine, stream, &now);
            own_join_host(&engine, &now);
            own_snapshot_drop(&engine, &now);
        }
    }
    printf("%lu then %lu\n", before, allocations - before);
    return 0;
}
"""


def test_one_stream(tmp_path):
    compiler = next(filter(shutil.which, [os.environ.get("CC", "cc"), "gcc", "clang"]), None)
    if compiler is None:
        pytest.skip("there is no C compiler")
    source, program = tmp_path / "steady.c", tmp_path / "steady"
    source.write_text(PROGRAM, encoding="utf-8")
    command = [compiler, "-O1", "-w", "-pthread", f"-I{INCLUDE}", str(source), "-o", str(program)]
    subprocess.run(command, check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout
    before, after = done.stdout.split(" then ")
    assert int(before) > 0, "they are counted"
    assert int(after) == 0
