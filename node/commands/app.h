// The program `larder`: finds the command and runs it. An error that leaves the command becomes one
// line on stderr and an exit code.
#pragma once

namespace larder::node::inline commands {

// Returns an ExitCode (node/service/exit_code.h).
int Main(int argc, char** argv);

}  // namespace larder::node::commands
