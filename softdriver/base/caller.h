#pragma once

#include <string>

namespace soft {

// Returns whether the thread holds the lock of the Python interpreter of this process, if there is
// one.
bool holds_interpreter();
// Returns the line of the program that the thread runs, such as "app.py:12". In a Python program,
// lines of installed packages are skipped. Takes the interpreter's lock, so the state lock must not
// be held; with `waits` false, returns "" if the thread does not hold it. Returns "" for a thread
// that runs no Python code.
std::string python_line(bool waits);
// Returns where machine code is: its function and library.
std::string place_of_code(const void *instruction);

} // namespace soft
