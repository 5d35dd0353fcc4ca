// `larder node`: one socket of a manifest as a process of its own. Today that is an attention socket: it
// waits for the weight socket's process
// (`larder run|bench|perplexity --manifest F --join`), serves it until it says goodbye, and waits for the
// next. If that process dies, this one says so and ends with status 75, for its supervisor to start again.
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.h"
#include "node/command.h"
#include "node/model_options.h"
#include "pipeline/attention_sockets.h"

namespace larder::node {
namespace {

struct NodeOptions {
  ModelOptions model;
  std::string socket;
  bool once = false;
};

int Run(const NodeOptions& o) {
  if (o.model.manifest.empty()) throw CLI::RequiredError("--manifest");
  spdlog::set_level(spdlog::level::info);
  const auto file = model::GgufFile::Open(ModelPath(o.model));
  const auto machine = ResolveTopology(o.model);
  const ManifestAndServer where = LoadManifest(o.model);
  pipeline::CheckRunnable(where.manifest);
  const pipeline::ManifestPlan sockets = pipeline::PlanManifest(
      where.manifest, where.server(), model::ReadModelConfig(*file), machine, ToPlanOptions(o.model));
  const size_t index = pipeline::AttentionIndex(sockets, o.socket);
  const pipeline::PlanAttentionSocket& socket = sockets.plan.attention[index];
  const sync::WaitPolicy wait = WaitPolicyFor(machine, sockets, o.model.isolated);
  do {
    // A listener of its own for each weight process: a second one that comes while the first is served is
    // told who is there.
    rdma::ControlListener listener(pipeline::ControlName(sockets.cluster, o.socket));
    spdlog::info(
        "attention socket {}: {} slots of {} tokens ({:.1f} MB); waiting for the weight socket of cluster {}",
        o.socket, socket.slots, sockets.plan.options.context, static_cast<double>(socket.kv_bytes) * 1e-6,
        sockets.cluster);
    try {
      pipeline::ServeAttentionProcess(sockets.plan, index, *file, listener, wait);
      spdlog::info("attention socket {}: the weight socket has ended", o.socket);
    } catch (const Error& error) {
      if (o.once) throw;
      spdlog::error("{}", error.what());  // a peer that was refused or gave up: the next may do better
    }
  } while (!o.once);
  return 0;
}

}  // namespace

Command AddNode(CLI::App& program) {
  auto o = std::make_shared<NodeOptions>();
  CLI::App* command = program.add_subcommand("node", "run one attention socket of a manifest as a process");
  command->add_option("--socket", o->socket, "its name in the manifest")->type_name("NAME")->required();
  command->add_flag("--once", o->once, "end when the weight socket's process has ended");
  ModelOptionSet set;
  set.threads = false;
  AddModelOptions(*command, o->model, set);
  return {command, [o] { return Run(*o); }};
}

}  // namespace larder::node
