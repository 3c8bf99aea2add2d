#pragma once

#include "base/cuda_api.h"
#include "base/process.h"
#include "work/operation.h"

namespace soft {

struct Event;
struct SharedPage;

// What several processes know of an interprocess event. It lies in a page of memory that all of
// them have mapped: the latest record, and which records are unfinished.
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
    // Whether the latest record is not the one that this object has noted last.
    bool recorded_elsewhere() const;
    // Whether the latest record is complete. If `needed`, its process has to run it.
    bool latest_done(bool needed) const;
    // Returns a condition that is true when the record that is the latest now is complete.
    std::function<bool()> when_done() const;

    // Writes the handle of an event that this process has created. Returns false for others.
    bool write_handle(CUipcEventHandle &handle) const;
    static CUresult open(const CUipcEventHandle &handle, std::shared_ptr<SharedEvent> &event);

  private:
    SharedEvent() = default;
    uint64_t find_room();
    bool done(uint64_t record, bool needed) const;

    SharedPage *page_ = nullptr;
    uint64_t id_ = 0;
    uint64_t index_ = 0; // of the page in the file
    bool created_ = false;
    uint64_t noted_ = 0; // the record that this object has noted last, or 0
};

// If the event's latest record is another process's, makes an operation that waits for that record,
// and lets the event refer to it.
CUresult follow_other_process(Event &event);
// Tells the race detector that the host knows what another process has known when its record was
// made: perhaps everything that this process has recorded.
void learn_told();

} // namespace soft
