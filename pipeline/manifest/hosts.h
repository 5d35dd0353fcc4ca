// Lists of hosts, as schedulers of clusters hand them to a job, and manifests made for them: a
// template has one [[server]] for all hosts.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace larder::pipeline::inline manifest {

// The hosts of a list, in its order: names between commas, spaces or line ends, each with any
// number of brackets as Slurm writes them (SLURM_JOB_NODELIST): "gpu[01-03,7],login" is gpu01,
// gpu02, gpu03, gpu7, login. Throws Error, naming `source`, if it is not such a list, names nobody,
// one twice, or more than kMostHosts.
inline constexpr size_t kMostHosts = 1024;
std::vector<std::string> ParseHosts(std::string_view list, const std::string& source);

// The pods of a group of Kubernetes' LeaderWorkerSet by its variables: the leader's address
// LWS_LEADER_ADDRESS ("NAME-0.SERVICE.NAMESPACE") and LWS_GROUP_SIZE: worker i is
// "NAME-0-i.SERVICE.NAMESPACE". Throws Error if one is missing or no such value.
std::vector<std::string> LeaderWorkerHosts(
    const std::function<const char*(const char* name)>& variable);

// The manifest of a template: each [[server]] with "{host}" in its text, its sockets included, once
// for each host; {host} is its name, {rank} its number from 0. Servers without it, and all else,
// stay as they are. path: of the template, for messages. Throws Error if no server has "{host}", or
// if the result is no manifest.
std::string ExpandManifest(std::string_view text, const std::string& path,
                           const std::vector<std::string>& hosts);

}  // namespace larder::pipeline::manifest
