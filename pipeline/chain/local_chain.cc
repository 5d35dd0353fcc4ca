#include "pipeline/chain/local_chain.h"

namespace larder::pipeline::inline chain {

LocalChain::LocalChain(const StagePlan& plan, const model::GgufFile& file,
                       const ChainOptions& options, SocketStatus& status)
    : status_(status), stage_(plan, file, options) {}

}  // namespace larder::pipeline::chain
