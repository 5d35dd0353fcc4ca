// The program `larder`: finds the command, runs it, and turns whatever went wrong into one line on stderr and
// an exit code. The only place that catches larder::Error.
#pragma once

namespace larder::node {

// Returns an ExitCode (node/service/exit_code.h).
int Main(int argc, char** argv);

}  // namespace larder::node
