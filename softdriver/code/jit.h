#pragma once

#include "code/image.h"
#include "code/modules.h"
#include "work/operation.h"

namespace soft {

struct Call;

// The JIT options of a call. The logs, the wall time, the target and the register limit have an
// effect; all other known options are accepted and ignored.
class JitOptions {
  public:
    // Reads the options. Returns an error if one is unknown or has a bad value.
    CUresult read(unsigned count, CUjit_option *options, void **values);
    // Returns true if there are options that are allowed only for a link as a whole, not for one of
    // its inputs.
    bool for_all() const { return info_.size || error_.size || target_ >= 0; }
    // Appends lines to the error log and adds to the compile time. Then updates everything for
    // which the program has asked: the logs (the info log is empty), their lengths, and the time.
    void tell(const std::string &errors, Clock::duration took = {});
    // Returns the limit of registers per thread, or 0 if there is none.
    unsigned max_registers() const { return max_registers_; }
    // Returns CUDA_SUCCESS unless the program has asked for a target other than the device. Which
    // error it returns depends on the capability of the code.
    CUresult check_target(int capability) const;

  private:
    struct Log {
        char *buffer = nullptr;
        size_t room = 0, used = 0;
        void **size = nullptr; // the program stores the buffer's size, the driver the used size
    };

    static void write(Log &log, const std::string &text);

    Log info_, error_;
    std::string errors_; // all lines of the error log
    Clock::duration took_{};
    void **wall_time_ = nullptr, **threads_ = nullptr;
    int target_ = -1;
    unsigned max_registers_ = 0;
};

// Returns an error unless each text of an image compiles as a part of a program. The log of the
// options says what is wrong.
CUresult check_parts(Call &call, const Image &image, JitOptions &options);
// Compiles an image, and releases the state lock meanwhile. If it fails, the log of the options
// says why.
CUresult compile(Call &call, const Image &image, JitOptions &options, ProgramPtr &program);

} // namespace soft
