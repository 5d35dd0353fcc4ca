// The cluster's key on the command line, and where links may do without one.
#pragma once

#include <memory>

#include "node/options/model_options.h"
#include "pipeline/chain/chain_plan.h"
#include "rdma/proof/link_key.h"

namespace larder::node {

// Of --link-key, else of systemd's credential link.key; null: there is none. Error if it can't be used.
std::shared_ptr<const rdma::LinkKey> LoadLinkKey(const ModelOptions& options);

// Gives the chain's links their key. Error if one of them goes beyond this server, there is no key, and
// options.open_links does not say that this is meant.
void SetLinkKey(const ModelOptions& options, pipeline::ChainPlan& chain);

}  // namespace larder::node
