#pragma once

#include "code/image.h"
#include "code/modules.h"
#include "work/operation.h"

namespace soft {

struct Call;

// What a program wants of the compiler of PTX, which is none here: all but the logs changes
// nothing.
class JitOptions {
  public:
    // Refuses those that are not known.
    CUresult read(unsigned count, CUjit_option *options, void **values);
    // Whether there is any that concerns the result of a link and not one of its inputs.
    bool for_all() const { return info_.size || error_.size || target_ >= 0; }
    // Adds lines to the error log (the other one is empty), and writes what the program is told:
    // the logs, how long they are, and the time that the compiler has taken, and took now.
    void tell(const std::string &errors, Clock::duration took = {});
    // How many registers a thread may have, if that was said; else 0.
    unsigned max_registers() const { return max_registers_; }
    // The error of a text for devices of this capability, where another target was asked for.
    CUresult check_target(int capability) const;

  private:
    struct Log {
        char *buffer = nullptr;
        size_t room = 0, used = 0;
        void **size = nullptr; // where the program gave the room and finds what is used
    };

    static void write(Log &log, const std::string &text);

    Log info_, error_;
    std::string errors_; // all lines of the error log
    Clock::duration took_{};
    void **wall_time_ = nullptr, **threads_ = nullptr;
    int target_ = -1;
    unsigned max_registers_ = 0;
};

// Whether all texts of an image can be compiled as parts of a program. If not, the options' log
// says why.
CUresult check_parts(Call &call, const Image &image, JitOptions &options);
// Makes code of an image, without the state lock. Says why not in the options' log.
CUresult compile(Call &call, const Image &image, JitOptions &options, ProgramPtr &program);

} // namespace soft
