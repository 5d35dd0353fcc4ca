// The commands of the program, one file each: commands/NAME.cc. Add*() describes a command's
// options to CLI11 and returns the Command, which does nothing before run() is called.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace larder::node::inline commands {

struct Command {
  CLI::App* options = nullptr;  // owned by the program's CLI::App
  std::function<int()> run;     // returns the exit code; throws Error, or CLI::ValidationError for
                                // wrong usage
};

Command AddRun(CLI::App& program);
Command AddPlan(CLI::App& program);
Command AddBench(CLI::App& program);
Command AddBenchServe(CLI::App& program);
Command AddPerplexity(CLI::App& program);
Command AddTokenize(CLI::App& program);
Command AddInspect(CLI::App& program);
Command AddSplit(CLI::App& program);
Command AddSynth(CLI::App& program);
Command AddDoctor(CLI::App& program);
Command AddNode(CLI::App& program);
Command AddStatus(CLI::App& program);
Command AddUnit(CLI::App& program);
Command AddServe(CLI::App& program);
Command AddBatch(CLI::App& program);
Command AddTune(CLI::App& program);
Command AddVerify(CLI::App& program);

}  // namespace larder::node::commands
