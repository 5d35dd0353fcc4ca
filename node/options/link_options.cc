#include "node/options/link_options.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "rdma/link/frame_link.h"

namespace larder::node::inline options {

std::shared_ptr<const rdma::LinkKey> LoadLinkKey(const ModelOptions& options) {
  if (!options.link_key.empty()) return rdma::LinkKey::Load(options.link_key);
  const char* folder = std::getenv("CREDENTIALS_DIRECTORY");
  if (folder == nullptr) return nullptr;
  const std::string path = std::string(folder) + "/link.key";
  if (access(path.c_str(), F_OK) != 0) return nullptr;
  return rdma::LinkKey::Load(path, /*credential=*/true);
}

namespace {

void CheckHasKey(const ModelOptions& options, const rdma::LinkEndpoint& endpoint) {
  if (endpoint.transport == rdma::Transport::kSharedMemory || rdma::IsLoopback(endpoint.host))
    return;
  throw Error(
      "{}: its link to {} over {} needs the cluster's key: give it --link-key FILE "
      "(`larder-cluster key` makes one, or `openssl rand -hex 32 > link.key; chmod 600 "
      "link.key`, the same on all servers), or --open-links if nobody else can reach that "
      "network",
      options.manifest, endpoint.host, rdma::TransportName(endpoint.transport));
}

}  // namespace

void SetLinkKey(const ModelOptions& options, pipeline::ChainPlan& chain) {
  chain.link_key = LoadLinkKey(options);
  if (chain.link_key || options.open_links) return;
  for (const pipeline::ChainStage& stage : chain.stages) CheckHasKey(options, stage.endpoint);
  CheckHasKey(options, chain.serving);
}

void CheckLinkKey(const ModelOptions& options, const pipeline::AttentionLinks& links) {
  if (links.identity.key || options.open_links) return;
  for (const auto& ends : links.of) {
    if (ends) CheckHasKey(options, ends->there);
  }
}

}  // namespace larder::node::options
