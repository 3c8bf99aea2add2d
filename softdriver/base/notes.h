#pragma once

#include <string>

namespace soft {

// Notes are for the report and the log (api/). These add their functions when the library is
// loaded. All other folders call note() and warn().

enum class Note { RefusedImage, Forked, KernelFault, Race, Hazard, Warning, NotSupported };

using NoteReader = void (*)(Note, const std::string &text);

void add_reader(NoteReader reader);

// Notes an image that cannot run here, a call that a forked child must not make, an error in a
// kernel, a data race, a hazard in a kernel, a mistake that real drivers accept, or a call with
// arguments that are not supported.
void note(Note what, const std::string &text);

// Notes a mistake that real drivers accept, once for each text.
void warn(const std::string &text);

} // namespace soft
