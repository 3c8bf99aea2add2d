#pragma once

#include <string>

namespace soft {

// Called before the first call of a program that is explored (see explore_process.h). If somebody
// listens at the socket FOLDER/server, this process stays in its first call, and forks a child for
// each run, in which this function returns. So a run needs no new start of the program. It returns
// in this process if the process has something that its children would share, such as a file that
// it writes, or that they would not have, such as another thread.
void serve_runs(const std::string &folder);

} // namespace soft
