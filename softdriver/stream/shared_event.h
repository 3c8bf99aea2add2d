#pragma once

#include "base/cuda_api.h"
#include "base/process.h"
#include "work/operation.h"

namespace soft {

struct Event;
struct SharedPage;

// The state of an interprocess event: the latest record, and which records are unfinished. It lies
// in a page of memory that all its processes have mapped.
class SharedEvent : public std::enable_shared_from_this<SharedEvent> {
  public:
    // Returns null if the system has no memory or no file for it.
    static std::shared_ptr<SharedEvent> create();
    ~SharedEvent();
    SharedEvent(const SharedEvent &) = delete;
    SharedEvent &operator=(const SharedEvent &) = delete;

    // Returns whether there is room for one more unfinished record.
    bool has_room();
    // Makes the operation the latest record, for all processes.
    void note_record(const OperationPtr &operation);
    // Returns whether the latest record differs from the last one that this object has noted.
    bool recorded_elsewhere() const;
    // Returns whether the latest record is complete. If `needed`, asks its process to run it.
    bool latest_done(bool needed) const;
    // Returns a condition that becomes true when the present latest record is complete.
    std::function<bool()> when_done() const;

    // Writes the handle of an event that this process has created. Returns false for an event of
    // another process.
    bool write_handle(CUipcEventHandle &handle) const;
    static CUresult open(const CUipcEventHandle &handle, std::shared_ptr<SharedEvent> &event);

  private:
    SharedEvent() = default;
    uint64_t find_room();
    bool done(uint64_t record, bool needed) const;

    SharedPage *page_ = nullptr;
    uint64_t id_ = 0;
    uint64_t index_ = 0; // index of the page in the file
    bool created_ = false;
    uint64_t noted_ = 0; // the record that this object has noted last, or 0
};

// If the event's latest record is another process's, makes an operation that waits for that record,
// and lets the event refer to it.
CUresult follow_other_process(Event &event);
// Tells the race detector that the host now knows what another process knew when it made its
// record. That may be everything that this process has recorded.
void learn_told();

} // namespace soft
