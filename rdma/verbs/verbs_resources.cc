#include "rdma/verbs/verbs_resources.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"

namespace larder::rdma::inline verbs {
namespace {

// Enough for a small batch of rows of a small model, and less than any device offers.
constexpr uint32_t kWantedInlineBytes = 220;
// How long a packet's acknowledgement may take before it is sent again: 4.096 us * 2^16 = 0.27 s,
// times 7 tries 1.9 s, within what the control connection allows. rdma_cm's own choice is seconds
// for each lost packet.
constexpr uint8_t kAckTimeout = 16;

std::string LockLimit() {
  rlimit limit = {};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : fmt::format("{} KB", limit.rlim_cur >> 10);
}

}  // namespace

int MtuBytes(ibv_mtu mtu) { return 128 << mtu; }
ibv_mtu MtuOf(int bytes) {
  ibv_mtu mtu = IBV_MTU_256;
  while (MtuBytes(mtu) < bytes && mtu < IBV_MTU_4096) mtu = static_cast<ibv_mtu>(mtu + 1);
  return mtu;
}

const char* GidTypeName(uint32_t type) {
  switch (type) {
    case IBV_GID_TYPE_IB:
      return "InfiniBand";
    case IBV_GID_TYPE_ROCE_V1:
      return "RoCE v1";
    case IBV_GID_TYPE_ROCE_V2:
      return "RoCE v2";
    default:
      return "unknown";
  }
}

std::string GidText(const ibv_gid& gid) {
  char text[INET6_ADDRSTRLEN] = "?";
  inet_ntop(AF_INET6, gid.raw, text, sizeof(text));
  return text;
}

std::string VerbsAddress(const std::string& device_name) {
  std::string found;
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  for (int i = 0; i < count && found.empty(); ++i) {
    if (!device_name.empty() && device_name != ibv_get_device_name(list[i])) continue;
    const std::unique_ptr<ibv_context, FreeVerbs<ibv_close_device>> device(
        ibv_open_device(list[i]));
    if (!device) continue;
    std::vector<ibv_gid_entry> table(256);
    const ssize_t gids = ibv_query_gid_table(device.get(), table.data(), table.size(), 0);
    for (ssize_t g = 0; g < gids; ++g) {
      const std::string text = GidText(table[static_cast<size_t>(g)].gid);
      if (text.starts_with("::ffff:")) found = text.substr(7);
    }
  }
  if (list != nullptr) ibv_free_device_list(list);
  return found;
}

std::string VerbsDevices() {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr) return "none";
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) names.emplace_back(ibv_get_device_name(list[i]));
  ibv_free_device_list(list);
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

std::string VerbsGids(ibv_context* device, int port) {
  std::vector<ibv_gid_entry> table(256);
  const ssize_t count = ibv_query_gid_table(device, table.data(), table.size(), 0);
  std::vector<std::string> texts;
  for (ssize_t i = 0; i < count; ++i) {
    const ibv_gid_entry& entry = table[static_cast<size_t>(i)];
    if (entry.port_num != static_cast<uint32_t>(port)) continue;
    texts.push_back(fmt::format("{}: {} ({})", entry.gid_index, GidText(entry.gid),
                                GidTypeName(entry.gid_type)));
  }
  return texts.empty() ? "none" : fmt::format("{}", fmt::join(texts, ", "));
}

VerbsResources::VerbsResources(EventChannel the_channel, CmId the_id, const LinkShape& shape,
                               LinkSide side, const std::string& what)
    : stride(shape.SlotStride(0)),
      ring_bytes(shape.slots * stride),
      memory(ring_bytes),
      channel(std::move(the_channel)),
      id(std::move(the_id)) {
  std::memset(memory.data(), 0, ring_bytes);  // touched here, on this thread's node
  const char* name = ibv_get_device_name(id->verbs->device);
  domain.reset(ibv_alloc_pd(id->verbs));
  if (!domain)
    throw Error("{}: device {}: no protection domain: {}", what, name, std::strerror(errno));
  // Only the receiver's ring is written by the other end.
  const int access =
      side == LinkSide::kReceive ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0;
  region.reset(ibv_reg_mr(domain.get(), memory.data(), ring_bytes, access));
  if (!region) {
    if (errno == ENOMEM) {
      throw Error(
          "{}: device {} cannot register the ring's {} KB: this process may lock {} of memory: "
          "raise it (LimitMEMLOCK=infinity in the unit, `ulimit -l unlimited` in a shell)",
          what, name, ring_bytes >> 10, LockLimit());
    }
    throw Error(
        "{}: device {} refused to register the ring's {} KB: {}: see `dmesg` and rdma.max of the "
        "process's control group, or use transport tcp",
        what, name, ring_bytes >> 10, std::strerror(errno));
  }
  CreateQueues(shape, side, what);
}

void VerbsResources::CreateQueues(const LinkShape& shape, LinkSide side, const std::string& what) {
  const bool sender = side == LinkSide::kSend;
  const char* name = ibv_get_device_name(id->verbs->device);
  const auto slots = static_cast<uint32_t>(shape.slots);
  ibv_qp_init_attr asked = {};
  asked.qp_type = IBV_QPT_RC;
  asked.cap.max_send_wr = sender ? slots + 1 : kCreditSends;
  asked.cap.max_recv_wr = sender ? kCreditReceives : slots + 1;
  asked.cap.max_send_sge = 1;
  asked.cap.max_recv_sge = 1;
  ibv_device_attr device = {};
  if (ibv_query_device(id->verbs, &device) == 0 &&
      slots + kCreditSends + 1 >
          static_cast<uint32_t>(std::min(device.max_qp_wr, device.max_cqe))) {
    throw Error("{}: device {} takes {} frames in flight, {} are asked for: lower the link's slots",
                what, name,
                std::min(device.max_qp_wr, device.max_cqe) - static_cast<int>(kCreditSends) - 1,
                slots);
  }
  completions.reset(ibv_create_comp_channel(id->verbs));
  if (completions) {
    fcntl(completions->fd, F_SETFL, fcntl(completions->fd, F_GETFL) | O_NONBLOCK);
    const auto queue = [&](uint32_t entries) {
      return ibv_create_cq(id->verbs, static_cast<int>(entries), nullptr, completions.get(), 0);
    };
    sends.reset(queue(asked.cap.max_send_wr));
    receives.reset(queue(asked.cap.max_recv_wr));
  }
  if (!sends || !receives) {
    throw Error("{}: device {}: no completion queue: {}: this process may lock {} of memory", what,
                name, std::strerror(errno), LockLimit());
  }
  asked.send_cq = sends.get();
  asked.recv_cq = receives.get();
  uint8_t ack_timeout = kAckTimeout;
  rdma_set_option(id.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout,
                  sizeof(ack_timeout));
  for (uint32_t wanted = kWantedInlineBytes;; wanted /= 2) {  // a device may allow less, or none
    ibv_qp_init_attr attributes = asked;
    attributes.cap.max_inline_data = wanted;
    pair.reset(ibv_create_qp(domain.get(), &attributes));
    if (pair) {
      inline_bytes = attributes.cap.max_inline_data;
      return;
    }
    if (wanted == 0) {
      throw Error("{}: device {}: no queue pair: {}: this process may lock {} of memory", what,
                  name, std::strerror(errno), LockLimit());
    }
  }
}

// A receive takes the immediate value of a frame or a credit; the sender says where the bytes go.
void VerbsResources::PostReceives(const LinkShape& shape, LinkSide side, const std::string& what) {
  const VerbsWork work =
      side == LinkSide::kSend ? VerbsWork::kCreditReceive : VerbsWork::kFrameReceive;
  const size_t count = side == LinkSide::kSend ? kCreditReceives : shape.slots;
  for (size_t i = 0; i < count; ++i) {
    ibv_recv_wr receive = {};
    receive.wr_id = WorkId(work, 0);
    ibv_recv_wr* refused = nullptr;
    if (const int error = ibv_post_recv(pair.get(), &receive, &refused); error != 0) {
      throw Error("{}: device {}: receive {} of {} refused: {}", what,
                  ibv_get_device_name(id->verbs->device), i, count, std::strerror(error));
    }
  }
}

// Moves the queue pair to the state, with the attributes that rdma_cm gives for it.
bool VerbsResources::Move(ibv_qp_state state, int mtu) const {
  ibv_qp_attr attributes = {};
  attributes.qp_state = state;
  int mask = 0;
  if (rdma_init_qp_attr(id.get(), &attributes, &mask) != 0) return false;
  if (mtu != 0 && (mask & IBV_QP_PATH_MTU) != 0) attributes.path_mtu = MtuOf(mtu);
  return ibv_modify_qp(pair.get(), &attributes, mask) == 0;
}

int VerbsResources::PathMtu(int wanted) const {
  ibv_qp_attr attributes = {};
  attributes.qp_state = IBV_QPS_RTR;
  int mask = 0;
  const bool known =
      rdma_init_qp_attr(id.get(), &attributes, &mask) == 0 && (mask & IBV_QP_PATH_MTU) != 0;
  const int path = known ? MtuBytes(attributes.path_mtu) : wanted;
  return wanted == 0 ? path : std::min(path, wanted);
}

bool VerbsResources::Connect(const LinkShape& shape, LinkSide side, int mtu,
                             const std::string& what) {
  if (!Move(IBV_QPS_INIT, 0)) return false;
  PostReceives(shape, side, what);
  return Move(IBV_QPS_RTR, mtu) && Move(IBV_QPS_RTS, 0);
}

std::string VerbsResources::Describe() const {
  ibv_qp_attr attributes = {};
  ibv_qp_init_attr ignored = {};
  std::string route = "route unknown";
  if (ibv_query_qp(pair.get(), &attributes, IBV_QP_AV | IBV_QP_PATH_MTU, &ignored) == 0) {
    const uint32_t gid_index = attributes.ah_attr.grh.sgid_index;
    ibv_gid_entry entry = {};
    route = "InfiniBand";  // without a global route: by LID
    if (attributes.ah_attr.is_global != 0 &&
        ibv_query_gid_ex(id->verbs, id->port_num, gid_index, &entry, 0) == 0) {
      route =
          fmt::format("{}, GID {} {}", GidTypeName(entry.gid_type), gid_index, GidText(entry.gid));
    }
    route += fmt::format(", MTU {}", MtuBytes(attributes.path_mtu));
  }
  return fmt::format("{} port {}, {}, inline {} bytes, ring {}",
                     ibv_get_device_name(id->verbs->device), id->port_num, route, inline_bytes,
                     memory.Describe());
}

}  // namespace larder::rdma::verbs
