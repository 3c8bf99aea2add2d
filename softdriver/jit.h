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
    void write_error(const std::string &text) { write(error_, text); }
    void write_info(const std::string &text) { write(info_, text); }
    bool verbose() const { return verbose_; }
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
    bool verbose_ = false;
};

// Makes code of an image, without the state lock. Says why not in the options' log.
CUresult compile(Call &call, const Image &image, JitOptions &options, ProgramPtr &program);

} // namespace soft
