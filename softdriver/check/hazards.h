#pragma once

#include "base/race_clock.h"
#include "base/waiting.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <unordered_set>
#include <vector>

// The list of hazards that the checks inside kernels have found.

namespace soft {

enum class RaceMode;

struct HazardAccess {
    std::string mode; // such as "write"
    std::string file; // empty if the code has no lines of a source
    int line = 0, ptx_line = 0;
    // If the code was inlined: where it is in the inlined function, such as "inlined.h:3".
    std::string inner;
    std::string place; // as text: "exchange.cu:12 (PTX line 40)"
    unsigned thread[3] = {}, block[3] = {};

    std::string
    told() const; // "write by thread (1, 0, 0) of block (0, 0, 0) at exchange.cu:12 (...)"
};

struct Hazard {
    std::string kind; // "race", "uninitialized" or "barrier"
    std::string kernel;
    std::string memory;           // such as "shared memory"
    uintptr_t address = 0;        // of global memory, for which the client may have a name
    std::string made;             // where the client has made this memory, if it is known
    uint64_t start = 0, stop = 0; // the bytes of that memory
    HazardAccess first, second;
    bool has_first = true, has_second = true;
    bool benign = false;
    uint64_t count = 1;
    std::string story;  // what has happened; if empty, that both accesses race
    std::string reason; // why they race; if empty, because nothing orders them
    std::string remedy;
    // If the second access is a copy to the host: the label with which the client describes the
    // copy.
    RaceLabel copy;
    bool print = false;

    std::string told() const;
    std::string where() const; // "bytes 0 to 4 of DeviceBuffer 'x' (made at a.py:12)"
};

// Hazards with equal keys count as one hazard. The number of different hazards is limited.
class Hazards {
  public:
    // The kernel, the kind, the memory, and both PTX lines, the lower first.
    using Key = std::tuple<std::string, std::string, std::string, int, int>;

    // Adds a hazard, or counts a repetition. `make` builds the hazard. It is called for a new
    // hazard, and for a repetition that may be in an earlier thread and then replaces the first
    // one. Without `make`, only repetitions are counted.
    void add(const Key &key, bool benign, RaceMode mode, const std::function<Hazard()> &make);
    const std::vector<Hazard> &all() const { return hazards_; }
    // The oldest hazard for whose memory the client has not been asked, or null.
    const Hazard *first_unnamed() const {
        return unnamed_.empty() ? nullptr : &hazards_[unnamed_.front()];
    }
    // Sets the client's names for the memory and the copy of first_unnamed(), and where it has made
    // the memory, and reports this hazard. A name is empty if the client has none.
    void name_first(const std::string &memory, const std::string &made, const std::string &copy);
    void flush(); // reports the hazards that have not been reported
    // The text of a hazard with its count.
    std::string text(size_t index) const;
    // The hazard as a JSON object.
    std::string json(size_t index) const;
    void clear();
    uint64_t cleared() const { return cleared_; } // how often clear() was called

  private:
    std::vector<Hazard> hazards_;
    std::map<Key, size_t> known_;
    std::deque<size_t> unnamed_; // indices of the hazards that have not been reported
    uint64_t cleared_ = 0;
    // Numbers that stand for the keys of hazards that were not kept, because the list was full.
    std::unordered_set<size_t> lost_;
};

// Asks the client for its names of the memory of new hazards, and reports these hazards. Called at
// the end of a driver call. Releases the lock while the client answers.
void name_hazards(Lock &lock);

} // namespace soft
