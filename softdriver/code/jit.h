#pragma once

#include "code/image.h"
#include "code/modules.h"
#include "work/operation.h"

namespace soft {

struct Call;

// The JIT options of a call. The options for logs, wall time, target and register limit have an
// effect. All other known options are accepted and ignored.
class JitOptions {
  public:
    // Reads the options. Returns an error if one is unknown or has a bad value.
    CUresult read(unsigned count, CUjit_option *options, void **values);
    // Returns true if there are options that a program may set for a whole link, but not for one of
    // its inputs.
    bool for_all() const { return info_.size || error_.size || target_ >= 0; }
    // Appends lines to the error log, and adds to the compile time. Then updates the logs (the info
    // log stays empty), their lengths and the time where the program wants them.
    void tell(const std::string &errors, Clock::duration took = {});
    // Returns the limit of registers per thread, or 0 if there is none.
    unsigned max_registers() const { return max_registers_; }
    // Returns an error if the program has asked for a target other than the device. The error
    // depends on `capability`, which is the compute capability of the code.
    CUresult check_target(int capability) const;

  private:
    struct Log {
        char *buffer = nullptr;
        size_t room = 0, used = 0;
        void **size = nullptr; // on input the size of the buffer, on output the used size
    };

    static void write(Log &log, const std::string &text);

    Log info_, error_;
    std::string errors_; // all lines of the error log
    Clock::duration took_{};
    void **wall_time_ = nullptr, **threads_ = nullptr;
    int target_ = -1;
    unsigned max_registers_ = 0;
};

// Checks that each text of an image compiles as a part of a program. If not, returns an error and
// writes the reasons to the log of the options.
CUresult check_parts(Call &call, const Image &image, JitOptions &options);
// Compiles an image. Releases the state lock while it compiles. Writes the reasons for a failure to
// the log of the options.
CUresult compile(Call &call, const Image &image, JitOptions &options, ProgramPtr &program);

} // namespace soft
