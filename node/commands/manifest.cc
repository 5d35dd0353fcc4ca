// `larder manifest expand`: the manifest of a template for the hosts of a job, on standard output.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "node/commands/command.h"
#include "node/options/terminal.h"
#include "pipeline/manifest/hosts.h"

namespace larder::node::inline commands {
namespace {

constexpr const char* kNodeList = "SLURM_JOB_NODELIST";

struct ManifestOptions {
  std::string action, template_file, hosts;
};

std::vector<std::string> HostsOf(const ManifestOptions& o) {
  if (!o.hosts.empty()) return pipeline::ParseHosts(o.hosts, "--hosts");
  if (const char* const list = std::getenv(kNodeList); list != nullptr)
    return pipeline::ParseHosts(list, kNodeList);
  if (std::getenv("LWS_LEADER_ADDRESS") != nullptr)
    return pipeline::LeaderWorkerHosts([](const char* name) { return std::getenv(name); });
  throw CLI::ValidationError(
      "--hosts",
      fmt::format("is missing, and neither {} nor LWS_LEADER_ADDRESS is set", kNodeList));
}

int Run(const ManifestOptions& o) {
  const std::vector<std::string> hosts = HostsOf(o);
  fmt::print("{}", pipeline::ExpandManifest(ReadFile(o.template_file), o.template_file, hosts));
  return 0;
}

}  // namespace

Command AddManifest(CLI::App& program) {
  auto o = std::make_shared<ManifestOptions>();
  CLI::App* command = program.add_subcommand(
      "manifest", "write the manifest of a cluster whose hosts a scheduler has chosen");
  command
      ->add_option("action", o->action,
                   "expand: print the template's manifest with each [[server]] that has {host} in "
                   "it once for each host; {rank} is the host's number, from 0")
      ->required()
      ->check(CLI::IsMember({"expand"}).description(""))
      ->type_name("expand");
  command->add_option("--template", o->template_file, "the template")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--hosts", o->hosts,
                   "such as a,b or node[01-04,7] (default: SLURM_JOB_NODELIST, or the pods of a "
                   "LeaderWorkerSet by LWS_LEADER_ADDRESS and LWS_GROUP_SIZE)")
      ->type_name("LIST");
  return {command, [o] { return Run(*o); }};
}

}  // namespace larder::node::commands
