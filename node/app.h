// The program `larder`: subcommands, configuration, wiring. The only place that catches larder::Error and exits.
#pragma once

namespace larder::node {

int Main(int argc, char** argv);

}  // namespace larder::node
