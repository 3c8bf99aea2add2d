#pragma once

#include "call.h"
#include "image.h"
#include "modules.h"

namespace soft {

// What a program wants of the compiler of PTX, which is none here: all but the logs changes
// nothing.
class JitOptions {
  public:
    // Refuses those that are not known.
    CUresult read(unsigned count, CUjit_option *options, void **values);
    // What the error log is to say; the other one is empty.
    void write(const std::string &errors) {
        write(info_, "");
        write(error_, errors);
    }
    // How many registers a thread may have, if that was said; else 0.
    unsigned max_registers() const { return max_registers_; }
    // The error of a text for devices of this capability, where another target was asked for.
    CUresult check_target(int capability) const;
    // Writes back how long the logs are, and what else was asked.
    void finish();

  private:
    struct Log {
        char *buffer = nullptr;
        size_t room = 0, used = 0;
        void **size = nullptr; // where the program gave the room and finds what is used
    };

    static void write(Log &log, const std::string &text);

    Log info_, error_;
    void **wall_time_ = nullptr, **threads_ = nullptr;
    int target_ = -1;
    unsigned max_registers_ = 0;
};

// Whether all texts of an image can be read. If not, the options' log says why.
CUresult check_texts(const Image &image, JitOptions &options);
// Makes code of an image, without the state lock. Says why not in the options' log.
CUresult compile(Call &call, const Image &image, JitOptions &options, ProgramPtr &program);

} // namespace soft
