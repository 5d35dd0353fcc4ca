// Set-up of a verbs link: hellos on the control connection, then a queue pair by rdma_cm. A MAC
// that only the two ends of the control connection can make ties the two together. The listener
// answers the connection request with the address and key of its ring.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "rdma/link/link_setup.h"
#include "rdma/proof/tcp_connection.h"
#include "rdma/verbs/verbs_resources.h"

namespace larder::rdma::inline link {

VerbsEnd::VerbsEnd(Descriptor control, std::unique_ptr<VerbsResources> resources,
                   const LinkShape& shape, LinkSide side, uint64_t remote_address,
                   uint32_t remote_key)
    : link(std::move(resources), shape, side, remote_address, remote_key, signal),
      monitor(std::move(control), signal) {}

VerbsEnd::~VerbsEnd() = default;

namespace {

constexpr int kStepMs = 3000;  // time limit of the other end's next step of set-up
// After 6 repetitions the link is lost. 7 would mean "for ever" to soft-RoCE.
constexpr uint8_t kRetries = 6;
constexpr uint32_t kLargestMtu = 4096;

// Private data of the connection request (rdma_cm carries 56 bytes) and of its answer. mac: by the
// session key of the control connection, over all before it and the number of the sending queue
// pair. So a request belongs to one control connection, and neither message can be changed on the
// way or reflected.
struct RequestData {
  uint32_t mtu = 0;   // the most bytes per packet; 0: what the path allows
  uint32_t pair = 0;  // its number
  uint8_t mac[kMacBytes] = {};
};
struct AnswerData {
  uint64_t ring_address = 0;
  uint32_t ring_key = 0;
  uint32_t mtu = 0;  // bytes per packet that both ends use
  uint32_t pair = 0;
  uint32_t reserved = 0;
  uint8_t mac[kMacBytes] = {};
};
static_assert(sizeof(RequestData) == 40 && sizeof(AnswerData) == 56);

struct CmEvent {
  rdma_cm_event_type type = RDMA_CM_EVENT_ADDR_ERROR;
  int status = 0;
  rdma_cm_id* id = nullptr;  // the id of a connection request: new, and ours to free
  uint32_t pair = 0;         // the other end's queue pair
  std::vector<std::byte> data;
};

// Whether the event's private data has a valid MAC of this session and of the queue pair that sent
// it.
template <typename Data>
bool FromPeer(const CmEvent& event, const SessionKey& session, std::string_view label, Data* data) {
  if (event.data.size() < sizeof(Data)) return false;
  std::memcpy(static_cast<void*>(data), event.data.data(), sizeof(Data));
  return session.Sealed(label, data, sizeof(Data)) && data->pair == event.pair;
}

// The next event of a channel, acknowledged; nullopt at the deadline or when `watched` (a control
// connection) is closed.
std::optional<CmEvent> NextEvent(rdma_event_channel* channel, int64_t deadline_ns,
                                 int watched_fd = -1) {
  for (;;) {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel, &event) == 0) {
      CmEvent copy{event->event, event->status, event->id, 0, {}};
      const auto* data = static_cast<const std::byte*>(event->param.conn.private_data);
      const bool has_data = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ||
                            event->event == RDMA_CM_EVENT_CONNECT_RESPONSE;
      if (has_data) copy.pair = event->param.conn.qp_num;
      if (has_data && data != nullptr)
        copy.data.assign(data, data + event->param.conn.private_data_len);
      rdma_ack_cm_event(event);
      return copy;
    }
    pollfd watched[2] = {{channel->fd, POLLIN, 0}, {watched_fd, POLLRDHUP, 0}};
    const int ready = poll(watched, 2, LeftMs(deadline_ns));
    if (ready > 0 && watched[1].revents != 0 && watched[0].revents == 0) return std::nullopt;
    if (ready == 0 && LeftMs(deadline_ns) == 0) return std::nullopt;
  }
}

EventChannel NewChannel(const std::string& what) {
  if (const std::string devices = VerbsDevices(); devices == "none") {
    throw Error(
        "{}: no RDMA device on this server (`ibv_devices` lists none): load its driver, or use "
        "transport tcp",
        what);
  }
  EventChannel channel(rdma_create_event_channel());
  if (!channel) {
    throw Error("{}: rdma_cm cannot be used: {}: `modprobe rdma_ucm`, or use transport tcp", what,
                std::strerror(errno));
  }
  fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
  return channel;
}

CmId NewId(rdma_event_channel* channel, const std::string& what) {
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0) {
    throw Error("{}: no rdma_cm id: {}", what, std::strerror(errno));
  }
  return CmId(id);
}

}  // namespace

// An IPv4 or IPv6 address; as 16 bytes it has the form of a GID, with IPv4 mapped.
struct Address {
  sockaddr_storage value = {};
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&value); }
  sockaddr_in* ip4() { return reinterpret_cast<sockaddr_in*>(&value); }
  sockaddr_in6* ip6() { return reinterpret_cast<sockaddr_in6*>(&value); }
  static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  static Address OfBytes(const uint8_t (&bytes)[16]) {
    Address address;
    const bool mapped = std::memcmp(bytes, kMapped, sizeof(kMapped)) == 0;
    address.value.ss_family = mapped ? AF_INET : AF_INET6;
    if (mapped) {
      std::memcpy(&address.ip4()->sin_addr, bytes + 12, 4);
    } else {
      std::memcpy(&address.ip6()->sin6_addr, bytes, 16);
    }
    return address;
  }
  void ToBytes(uint8_t (&bytes)[16]) {
    if (value.ss_family == AF_INET) {
      std::memcpy(bytes, kMapped, sizeof(kMapped));
      std::memcpy(bytes + 12, &ip4()->sin_addr, 4);
    } else {
      std::memcpy(bytes, &ip6()->sin6_addr, 16);
    }
  }
  bool IsAny() { return value.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&ip6()->sin6_addr); }
  // A link-local address is reached over the interface of our own address.
  void SetScope(Address& own) {
    if (value.ss_family == AF_INET6 && own.value.ss_family == AF_INET6 &&
        IN6_IS_ADDR_LINKLOCAL(&ip6()->sin6_addr))
      ip6()->sin6_scope_id = own.ip6()->sin6_scope_id;
  }
  std::string Text() {
    char text[INET6_ADDRSTRLEN] = "?";
    const void* bytes =
        value.ss_family == AF_INET ? static_cast<const void*>(&ip4()->sin_addr) : &ip6()->sin6_addr;
    inet_ntop(value.ss_family, bytes, text, sizeof(text));
    return text;
  }
  void SetPort(uint16_t port) {
    // the port has the same offset in both structs
    reinterpret_cast<sockaddr_in*>(&value)->sin_port = htons(port);
  }
};

namespace {

// The IP address that a RoCE GID contains.
Address AddressOfGid(const ibv_gid_entry& entry) {
  Address address = Address::OfBytes(entry.gid.raw);
  if (address.value.ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&address.ip6()->sin6_addr))
    address.ip6()->sin6_scope_id = entry.ndev_ifindex;
  return address;
}

// This end's own address on the device that the manifest names: that of the GID with the given
// index, or of the first RoCE v2 GID with an IPv4 address. nullopt if no device is named, or if it
// is InfiniBand, where addresses of IP over InfiniBand determine the route.
std::optional<Address> OwnAddress(const LinkEndpoint& endpoint, const std::string& what) {
  if (endpoint.device.empty()) {
    if (endpoint.gid_index >= 0) {
      throw Error("{}: gid_index {} without a device: name the device too (here: {})", what,
                  endpoint.gid_index, VerbsDevices());
    }
    return std::nullopt;
  }
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  std::unique_ptr<ibv_context, FreeVerbs<ibv_close_device>> device;
  for (int i = 0; i < count; ++i) {
    if (endpoint.device == ibv_get_device_name(list[i])) device.reset(ibv_open_device(list[i]));
  }
  if (list != nullptr) ibv_free_device_list(list);
  if (!device) {
    throw Error("{}: no RDMA device {} here (there are: {}): correct device in the manifest", what,
                endpoint.device, VerbsDevices());
  }
  ibv_port_attr port = {};
  if (ibv_query_port(device.get(), static_cast<uint8_t>(endpoint.device_port), &port) != 0) {
    throw Error("{}: device {} has no port {}: correct device_port in the manifest", what,
                endpoint.device, endpoint.device_port);
  }
  if (port.state != IBV_PORT_ACTIVE) {
    throw Error(
        "{}: device {} port {} is {}: is the cable in, the interface up, a subnet manager running?",
        what, endpoint.device, endpoint.device_port, ibv_port_state_str(port.state));
  }
  const auto port_number = static_cast<uint32_t>(endpoint.device_port);
  const uint32_t gids = static_cast<uint32_t>(std::max(port.gid_tbl_len, 0));
  const bool asked = endpoint.gid_index >= 0;
  const uint32_t first = asked ? static_cast<uint32_t>(endpoint.gid_index) : 0;
  for (uint32_t i = first; i < (asked ? first + 1 : gids); ++i) {
    ibv_gid_entry entry = {};
    if (ibv_query_gid_ex(device.get(), port_number, i, &entry, 0) != 0) continue;
    if (entry.gid_type == IBV_GID_TYPE_IB) return std::nullopt;
    Address address = AddressOfGid(entry);
    if (entry.gid_type == IBV_GID_TYPE_ROCE_V2 && (asked || address.value.ss_family == AF_INET))
      return address;
  }
  throw Error(
      "{}: device {} port {} has no RoCE v2 GID {}(it has {}): correct gid_index in the manifest, "
      "or give the interface an address",
      what, endpoint.device, endpoint.device_port,
      asked ? fmt::format("at index {} ", first) : std::string("with an IPv4 address "),
      VerbsGids(device.get(), endpoint.device_port));
}

// rdma_cm chose the device by the route; throws Error if the manifest names another.
void CheckDevice(const rdma_cm_id& id, const LinkEndpoint& endpoint, const std::string& what) {
  if (endpoint.device.empty()) return;
  const std::string name = ibv_get_device_name(id.verbs->device);
  if (name != endpoint.device || id.port_num != endpoint.device_port) {
    throw Error(
        "{}: the route goes over device {} port {}, the manifest says {} port {}: correct one of "
        "host and device",
        what, name, id.port_num, endpoint.device, endpoint.device_port);
  }
}

// The port of a link whose device is known. Packets have headers, so the interface's MTU must be
// larger than the link's.
void CheckMtu(const rdma_cm_id& id, const LinkEndpoint& endpoint, const std::string& what) {
  ibv_port_attr port = {};
  if (endpoint.mtu == 0 || ibv_query_port(id.verbs, id.port_num, &port) != 0) return;
  const int active = MtuBytes(port.active_mtu);
  if (endpoint.mtu <= active) return;
  throw Error(
      "{}: device {} port {} has an active MTU of {} bytes, the manifest says {}: lower mtu in the "
      "manifest, or raise the interface's (RoCE: `ip link set NAME mtu {}`) there and on the way",
      what, ibv_get_device_name(id.verbs->device), id.port_num, active, endpoint.mtu,
      endpoint.mtu + 104);
}

rdma_conn_param Parameters(const VerbsResources& resources, const void* data, size_t bytes) {
  rdma_conn_param parameters = {};
  parameters.qp_num = resources.pair->qp_num;
  parameters.private_data = data;
  parameters.private_data_len = static_cast<uint8_t>(bytes);
  parameters.retry_count = kRetries;
  parameters.rnr_retry_count = kRetries;
  return parameters;
}

MadeLink<VerbsEnd> Make(Handshake control, std::unique_ptr<VerbsResources> resources,
                        const LinkShape& shape, LinkSide side, const AnswerData& remote) {
  MadeLink<VerbsEnd> made;
  made.session = control.theirs.session;
  made.peer = std::move(control.peer);
  made.description = fmt::format("verbs, {} slots of {} bytes, {}", shape.slots, shape.frame_bytes,
                                 resources->Describe());
  made.end = std::make_unique<VerbsEnd>(std::move(control.control), std::move(resources), shape,
                                        side, remote.ring_address, remote.ring_key);
  return made;
}

}  // namespace

std::optional<MadeLink<VerbsEnd>> TryConnectVerbs(const LinkEndpoint& endpoint,
                                                  const LinkShape& shape, const WireHello& mine,
                                                  const LinkKey& key, int64_t deadline_ns,
                                                  std::string* why) {
  const std::string what = What(endpoint);
  EventChannel channel = NewChannel(what);
  CmId id = NewId(channel.get(), what);
  // may throw: before the other end waits for us
  std::optional<Address> own = OwnAddress(endpoint, what);
  std::optional<Handshake> control = ConnectControl(endpoint, mine, key, deadline_ns, why);
  if (!control) return std::nullopt;

  // Each step is started, then its event is awaited. If the listener goes away meanwhile, the
  // caller retries.
  const int control_fd = control->control.get();
  const auto failed = [&](const char* step, const std::optional<CmEvent>& event) {
    *why = fmt::format("{}: {}", step,
                       event ? fmt::format("{} ({})", rdma_event_str(event->type),
                                           std::strerror(std::abs(event->status)))
                             : std::string("no answer"));
    return std::nullopt;
  };
  const auto step_ns = [&] { return std::min(deadline_ns, DeadlineNs(kStepMs)); };
  // The address of the device that the listener's manifest names, else the one of the control
  // connection.
  Address there = Address::OfBytes(control->theirs.rdma_address);
  socklen_t bytes = sizeof(there.value);
  if (there.IsAny() && getpeername(control_fd, there.get(), &bytes) != 0) {
    *why = std::strerror(errno);
    return std::nullopt;
  }
  if (own) there.SetScope(*own);
  there.SetPort(static_cast<uint16_t>(control->theirs.rdma_port));
  std::optional<CmEvent> event;
  if (rdma_resolve_addr(id.get(), own ? own->get() : nullptr, there.get(), kStepMs) != 0) {
    throw Error(
        "{}: {} leads to no RDMA device ({}); devices here: {}: give the address of the RDMA "
        "network as host, or use transport tcp",
        what, endpoint.host, std::strerror(errno), VerbsDevices());
  }
  event = NextEvent(channel.get(), step_ns());
  if (event && event->type == RDMA_CM_EVENT_ADDR_ERROR) {
    throw Error(
        "{}: {} leads to no RDMA device ({}); devices here: {}: give the address of the RDMA "
        "network as host, or use transport tcp",
        what, endpoint.host, std::strerror(std::abs(event->status)), VerbsDevices());
  }
  if (!event || event->type != RDMA_CM_EVENT_ADDR_RESOLVED) return failed("address", event);
  CheckDevice(*id, endpoint, what);
  CheckMtu(*id, endpoint, what);
  if (rdma_resolve_route(id.get(), kStepMs) != 0) return failed("route", std::nullopt);
  event = NextEvent(channel.get(), step_ns());
  if (!event || event->type != RDMA_CM_EVENT_ROUTE_RESOLVED) return failed("route", event);

  auto resources = std::make_unique<VerbsResources>(std::move(channel), std::move(id), shape,
                                                    LinkSide::kSend, what);
  RequestData request;
  request.mtu = static_cast<uint32_t>(endpoint.mtu);
  request.pair = resources->pair->qp_num;
  control->session.Seal(kVerbsRequest, request);
  rdma_conn_param parameters = Parameters(*resources, &request, sizeof(request));
  if (rdma_connect(resources->id.get(), &parameters) != 0)
    return failed("connecting", std::nullopt);
  event = NextEvent(resources->channel.get(), step_ns(), control_fd);
  if (!event || event->type != RDMA_CM_EVENT_CONNECT_RESPONSE) {
    // the control connection works, so the fault is in the RDMA network
    const std::string step = fmt::format(
        "device {} port {} does not reach {} (are both ends' devices on one network?): connecting",
        ibv_get_device_name(resources->id->verbs->device), resources->id->port_num, there.Text());
    return failed(step.c_str(), event);
  }
  AnswerData answer;
  if (!FromPeer(*event, control->session, kVerbsAnswer, &answer))
    return failed("answer of another link", event);
  if (!resources->Connect(shape, LinkSide::kSend, static_cast<int>(answer.mtu), what) ||
      rdma_establish(resources->id.get()) != 0)
    return failed("connecting the queue pairs", std::nullopt);
  return Make(std::move(*control), std::move(resources), shape, LinkSide::kSend, answer);
}

struct VerbsListener::State {
  LinkEndpoint endpoint;
  std::string what;
  EventChannel channel;
  CmId id;
  std::optional<Address> own;  // address of the device that the manifest names

  // The link to a connector that has been answered; null if it went away or its queue pair did not
  // come.
  std::optional<MadeLink<VerbsEnd>> Complete(Handshake control, const LinkShape& shape,
                                             int64_t deadline_ns);
};

VerbsListener::VerbsListener(const LinkEndpoint& endpoint) : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.endpoint = endpoint;
  state.what = What(endpoint);
  state.channel = NewChannel(state.what);
  state.id = NewId(state.channel.get(), state.what);
  Address address;
  address.value.ss_family = AF_INET6;  // every address, IPv4 included
  state.own = OwnAddress(endpoint, state.what);
  if (state.own) {
    address = *state.own;
  } else if (!endpoint.host.empty()) {
    // finds the host's first address that is local
    const Descriptor probe = ListenTcp(endpoint.host, 0, state.what);
    socklen_t bytes = sizeof(address.value);
    getsockname(probe.get(), address.get(), &bytes);
  }
  address.SetPort(0);
  const bool bound = rdma_bind_addr(state.id.get(), address.get()) == 0;
  const bool has_device = state.id->verbs != nullptr;  // when listening on every address, the
                                                       // device is known with a connector
  if (!bound || (!endpoint.host.empty() && !has_device)) {
    throw Error(
        "{}: {} belongs to no RDMA device{}; devices here: {}: name one as device, give the "
        "address of the RDMA network as host, or use transport tcp",
        state.what, endpoint.host.empty() ? "this server" : endpoint.host,
        bound ? "" : fmt::format(" ({})", std::strerror(errno)), VerbsDevices());
  }
  if (has_device) {
    CheckDevice(*state.id, endpoint, state.what);
    CheckMtu(*state.id, endpoint, state.what);
  }
  if (rdma_listen(state.id.get(), 16) != 0) {
    throw Error("{}: rdma_cm cannot listen: {}", state.what, std::strerror(errno));
  }
}

VerbsListener::~VerbsListener() = default;

uint16_t VerbsListener::port() const { return ntohs(rdma_get_src_port(state_->id.get())); }

std::optional<MadeLink<VerbsEnd>> VerbsListener::State::Complete(Handshake control,
                                                                 const LinkShape& shape,
                                                                 int64_t deadline_ns) {
  const int control_fd = control.control.get();
  CmId request;
  RequestData data;
  while (!request) {
    const std::optional<CmEvent> event = NextEvent(channel.get(), deadline_ns, control_fd);
    if (!event) return std::nullopt;
    if (event->type != RDMA_CM_EVENT_CONNECT_REQUEST) continue;
    CmId came(event->id);
    if (FromPeer(*event, control.session, kVerbsRequest, &data)) {
      request = std::move(came);
    } else {
      rdma_reject(came.get(), nullptr, 0);
    }
  }
  CheckDevice(*request, endpoint, what);
  CheckMtu(*request, endpoint, what);
  // The link gets its own event channel, because it outlives this listener.
  EventChannel own_channel = NewChannel(what);
  if (rdma_migrate_id(request.get(), own_channel.get()) != 0) {
    throw Error("{}: rdma_cm: {}", what, std::strerror(errno));
  }
  auto resources = std::make_unique<VerbsResources>(std::move(own_channel), std::move(request),
                                                    shape, LinkSide::kReceive, what);
  AnswerData answer;
  answer.ring_address = reinterpret_cast<uint64_t>(resources->memory.data());
  answer.ring_key = resources->region->rkey;
  const int asked = static_cast<int>(std::min(data.mtu, kLargestMtu));
  answer.mtu = static_cast<uint32_t>(resources->PathMtu(
      asked == 0 || (endpoint.mtu != 0 && endpoint.mtu < asked) ? endpoint.mtu : asked));
  answer.pair = resources->pair->qp_num;
  control.session.Seal(kVerbsAnswer, answer);
  rdma_conn_param parameters = Parameters(*resources, &answer, sizeof(answer));
  if (!resources->Connect(shape, LinkSide::kReceive, static_cast<int>(answer.mtu), what) ||
      rdma_accept(resources->id.get(), &parameters) != 0)
    return std::nullopt;
  const std::optional<CmEvent> event = NextEvent(resources->channel.get(), deadline_ns, control_fd);
  if (!event || event->type != RDMA_CM_EVENT_ESTABLISHED) return std::nullopt;
  return Make(std::move(control), std::move(resources), shape, LinkSide::kReceive, {});
}

MadeLink<VerbsEnd> VerbsListener::Accept(const Door& door, const LinkShape& shape, WireHello mine,
                                         int64_t deadline_ns) {
  mine.rdma_port = port();
  if (state_->own) state_->own->ToBytes(mine.rdma_address);
  for (;;) {
    Handshake control = AcceptControl(door, state_->endpoint, mine, deadline_ns);
    auto made =
        state_->Complete(std::move(control), shape, std::min(deadline_ns, DeadlineNs(2 * kStepMs)));
    if (made) return std::move(*made);
  }
}

}  // namespace larder::rdma::link
