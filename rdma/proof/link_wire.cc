#include "rdma/proof/link_wire.h"

#include <fmt/format.h>

namespace larder::rdma::inline proof {

bool IsHello(const WireHello& hello) { return hello.magic == kWireMagic; }

std::string Disagreement(const WireHello& mine, const WireHello& theirs) {
  const std::string my_name = Text(mine.name), their_name = Text(theirs.name);
  if (theirs.version != mine.version) {
    return fmt::format(
        "socket {} speaks version {} of the links' protocol, socket {} version {}: install one "
        "build on all servers",
        my_name, mine.version, their_name, theirs.version);
  }
  if (Text(theirs.cluster) != Text(mine.cluster)) {
    return fmt::format(
        "socket {} belongs to cluster \"{}\", socket {} to \"{}\": one of the two manifests has "
        "the other's address",
        my_name, Text(mine.cluster), their_name, Text(theirs.cluster));
  }
  if (theirs.plan_hash != mine.plan_hash) {
    return fmt::format(
        "socket {} runs Plan {:016x}, socket {} Plan {:016x}: start both with the same model, "
        "manifest and options",
        my_name, mine.plan_hash, their_name, theirs.plan_hash);
  }
  if (theirs.transport != mine.transport) {
    return fmt::format("socket {} wants another transport than socket {}: their manifests differ",
                       my_name, their_name);
  }
  if (theirs.frame_bytes != mine.frame_bytes || theirs.slots != mine.slots) {
    return fmt::format(
        "socket {} expects {} slots of {} bytes, socket {} {} of {}: install one build on all "
        "servers",
        my_name, mine.slots, mine.frame_bytes, their_name, theirs.slots, theirs.frame_bytes);
  }
  return {};
}

std::string Refusal(const WireHello& mine, const WireHello& theirs) {
  const std::string name = Text(theirs.name);
  if (theirs.version != mine.version)
    return "another version of the links' protocol: install one build on all servers";
  if (Text(theirs.cluster) != Text(mine.cluster)) {
    return fmt::format(
        "it belongs to another cluster than \"{}\": one of the two manifests has the other's "
        "address",
        Text(theirs.cluster));
  }
  if (theirs.plan_hash != mine.plan_hash) {
    return fmt::format(
        "it runs another Plan than {:016x} of socket {}: start both with the same model, manifest "
        "and options",
        theirs.plan_hash, name);
  }
  if (theirs.transport != mine.transport)
    return "it wants another transport: the two manifests differ";
  if (theirs.frame_bytes != mine.frame_bytes || theirs.slots != mine.slots) {
    return fmt::format(
        "it expects another shape than {} slots of {} bytes: install one build on all servers",
        theirs.slots, theirs.frame_bytes);
  }
  return {};
}

bool IsBeat(const WireBeat& beat) {
  return beat.magic == static_cast<uint32_t>(kWireMagic) &&
         (beat.kind == BeatKind::kAlive || beat.kind == BeatKind::kFault ||
          beat.kind == BeatKind::kBye);
}

sync::Fault FaultOf(const WireBeat& beat) {
  constexpr auto kLast = static_cast<uint32_t>(sync::FaultCode::kRankStopped);
  if (beat.code == 0 || beat.code > kLast) return {sync::FaultCode::kLinkDown, 0};
  return {static_cast<sync::FaultCode>(beat.code), beat.detail};
}

}  // namespace larder::rdma::proof
