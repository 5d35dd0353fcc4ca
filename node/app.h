// The program `larder`: finds the command, runs it, and turns whatever went wrong into one line on stderr and
// an exit code. The only place that catches larder::Error.
#pragma once

namespace larder::node {

// 0: done. 1: an error. 2: wrong usage. 128 + signal: ended by a signal (Ctrl-C: 130).
int Main(int argc, char** argv);

}  // namespace larder::node
