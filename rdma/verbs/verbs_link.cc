#include "rdma/verbs/verbs_link.h"

#include "rdma/verbs/verbs_resources.h"

namespace larder::rdma::inline verbs {

VerbsLink::VerbsLink(std::unique_ptr<VerbsResources> resources, const LinkShape& shape,
                     LinkSide side, uint64_t remote_address, uint32_t remote_key,
                     FaultSignal& fault)
    : shape_(shape),
      side_(side),
      batch_(CreditBatch(shape.slots)),
      fault_(fault),
      resources_(std::move(resources)),
      ring_(resources_->memory.data()),
      stride_(resources_->stride),
      remote_address_(remote_address),
      sizes_(side == LinkSide::kReceive ? shape.slots : 0) {
  resources_->piece.lkey = resources_->region->lkey;
  ibv_send_wr& write = resources_->write;
  write.sg_list = &resources_->piece;
  write.num_sge = 1;
  write.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  write.wr.rdma.rkey = remote_key;
}

VerbsLink::~VerbsLink() = default;

}  // namespace larder::rdma::verbs
