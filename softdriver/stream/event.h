#pragma once

#include "device/context.h"
#include "work/operation.h"

#include <set>

namespace soft {

struct Capture;
class SharedEvent;

struct Event {
    CUevent handle = nullptr;
    // Keeps the Context object alive, even if the program has destroyed the context.
    ContextPtr context;
    Context *owner = nullptr; // the event's context, which may have been destroyed; never null
    unsigned flags = 0;
    int patience = 0;
    OperationPtr recorded;               // the operation of the latest record, or null
    std::shared_ptr<SharedEvent> shared; // of an interprocess event; else null
    std::shared_ptr<Capture> capture;
    std::set<uint64_t> capture_tail;
};

using EventPtr = std::shared_ptr<Event>;

EventPtr create_event(const ContextPtr &context, unsigned flags);
CUresult find_event(CUevent handle, EventPtr &event);
// Submits an operation and makes it the event's latest record.
CUresult record(Event &event, Stream &stream, OperationPtr operation);
// Makes a submitted operation the event's latest record.
void note_record(Event &event, OperationPtr operation);

} // namespace soft
