// VerbsResources: what one end of a verbs link owns: the queue pair, its completion queues, and the
// ring, which is registered once. Set-up only. All are made before the connection and freed in the
// reverse order. The headers of libibverbs and librdmacm are included here and in verbs_*.cc only.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "rdma/common/link_shape.h"
#include "topology/arena.h"

namespace larder::rdma::inline verbs {

template <auto kFree>
struct FreeVerbs {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using EventChannel = std::unique_ptr<rdma_event_channel, FreeVerbs<rdma_destroy_event_channel>>;
using CmId = std::unique_ptr<rdma_cm_id, FreeVerbs<rdma_destroy_id>>;

// The kind of a work request, in the upper half of its id; the lower half is a number.
enum class VerbsWork : uint64_t { kFrameReceive = 1, kCreditReceive, kFrameSend, kCreditSend };
constexpr uint64_t WorkId(VerbsWork work, uint32_t number) {
  return static_cast<uint64_t>(work) << 32 | number;
}

class VerbsResources {
 public:
  // The most credits that a receiver may have in flight, and that a sender may have left unread.
  static constexpr uint32_t kCreditSends = 32;
  static constexpr uint32_t kCreditReceives = 8;

  // Takes ownership of an id whose device is known, and makes a queue pair there. `what` begins the
  // Errors. Throws Error, with the remedy, if the device refuses.
  VerbsResources(EventChannel the_channel, CmId the_id, const LinkShape& shape, LinkSide side,
                 const std::string& what);
  VerbsResources(const VerbsResources&) = delete;
  VerbsResources& operator=(const VerbsResources&) = delete;

  // Posts all receives and connects the queue pair to the other end's, once rdma_cm knows it. mtu:
  // the most bytes per packet, the same at both ends; 0: what the path allows. Returns false if the
  // connection is gone again (a connector that had waited too long). Throws Error if the device
  // refuses a receive.
  bool Connect(const LinkShape& shape, LinkSide side, int mtu, const std::string& what);
  // Bytes per packet: what the path allows, or `wanted` (0: no limit) if that is less. Before
  // Connect().
  int PathMtu(int wanted) const;

  // "rxe0 port 1, RoCE v2, GID 1 ::ffff:10.7.0.1, MTU 1024, inline 220 bytes, ring 2 MB ..."; when
  // connected
  std::string Describe() const;

  // Slots of one frame each, on cache lines of their own.
  const size_t stride;
  const size_t ring_bytes;
  topology::Arena memory;
  EventChannel channel;
  CmId id;  // the id of the connection
  std::unique_ptr<ibv_pd, FreeVerbs<ibv_dealloc_pd>> domain;
  std::unique_ptr<ibv_mr, FreeVerbs<ibv_dereg_mr>> region;
  std::unique_ptr<ibv_comp_channel, FreeVerbs<ibv_destroy_comp_channel>>
      completions;  // non-blocking
  std::unique_ptr<ibv_cq, FreeVerbs<ibv_destroy_cq>> sends, receives;
  // Last member, because it uses all of the above. It is made without rdma_cm, whose calls would
  // choose its MTU.
  std::unique_ptr<ibv_qp, FreeVerbs<ibv_destroy_qp>> pair;
  uint32_t inline_bytes = 0;
  // Sender: the write of a frame, prepared by VerbsLink; each frame changes the numbers, the
  // addresses and the length.
  ibv_sge piece = {};
  ibv_send_wr write = {};

 private:
  bool Move(ibv_qp_state state, int mtu) const;
  void CreateQueues(const LinkShape& shape, LinkSide side, const std::string& what);
  void PostReceives(const LinkShape& shape, LinkSide side, const std::string& what);
};

// An IPv4 address of this server that belongs to an RDMA device (RoCE), to the one of this name if
// a name is given. Empty if there is none.
std::string VerbsAddress(const std::string& device);
// "rxe0, mlx5_0", or "none", for the Error about an address that belongs to no device.
std::string VerbsDevices();
// A port's GIDs: "1: ::ffff:10.7.0.1 (RoCE v2), ...".
std::string VerbsGids(ibv_context* device, int port);
// Bytes per packet: 256, 512, 1024, 2048 or 4096.
int MtuBytes(ibv_mtu mtu);
ibv_mtu MtuOf(int bytes);
const char* GidTypeName(uint32_t type);
std::string GidText(const ibv_gid& gid);

}  // namespace larder::rdma::verbs
