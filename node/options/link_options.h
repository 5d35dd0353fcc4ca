// The cluster's key on the command line, and the check that links which need a key have one.
#pragma once

#include <memory>

#include "node/options/model_options.h"
#include "pipeline/chain/chain_plan.h"
#include "rdma/proof/link_key.h"

namespace larder::node::inline options {

// The key from --link-key, else from systemd's credential link.key; null if there is neither. Error
// if it can't be used.
std::shared_ptr<const rdma::LinkKey> LoadLinkKey(const ModelOptions& options);

// Gives the chain's links their key. Error if a link leaves this server, there is no key, and
// options.open_links is not set.
void SetLinkKey(const ModelOptions& options, pipeline::ChainPlan& chain);
// The same for links to attention sockets of other servers, which have the key that there is.
void CheckLinkKey(const ModelOptions& options, const pipeline::AttentionLinks& links);

}  // namespace larder::node::options
