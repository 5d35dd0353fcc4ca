// The commands of the program, one file each: commands/NAME.cc. Add*() describes a command's
// options to CLI11 and returns the Command, which does nothing before run() is called.
#pragma once

#include <functional>
#include <string>

#include "node/options/model_options.h"

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
Command AddSimulate(CLI::App& program);
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
Command AddManifest(CLI::App& program);
// known: `larder serve` is run by `larder node` for a serving socket of this name, with the options
// of the model that node has read; they outlive the call. Null: it is a command of its own.
struct ServingSocket {
  const ModelOptions& model;
  std::string name;
};
Command AddServe(CLI::App& program, const ServingSocket* known = nullptr);
Command AddBatch(CLI::App& program);
Command AddTune(CLI::App& program);
Command AddVerify(CLI::App& program);

}  // namespace larder::node::commands
