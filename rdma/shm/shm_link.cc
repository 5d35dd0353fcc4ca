// Set-up of a ShmLink: sizes, formatting, attaching.
#include "rdma/shm/shm_link.h"

#include <new>

#include "base/error.h"

namespace larder::rdma::inline shm {
namespace {

constexpr uint64_t kMagic = 0x4b4e494c4d48534cull;  // "LSHMLINK"
constexpr uint32_t kVersion = 2;
constexpr size_t kMaxFrameBytes = size_t{1} << 30;
constexpr size_t kMaxSlots = size_t{1} << 16;

size_t Stride(const ShmLinkShape& shape) {
  return RoundUp(kCacheLineBytes + shape.frame_bytes, kFalseSharingBytes);
}

void CheckRegion(std::span<std::byte> region, const ShmLinkShape& shape) {
  const size_t needed = shape.bytes();
  if (region.size() < needed) {
    throw Error("shared-memory link: {} slots of {} bytes need {} bytes, the region has {}", shape.slots,
                shape.frame_bytes, needed, region.size());
  }
  LARDER_CHECK(reinterpret_cast<uintptr_t>(region.data()) % kFalseSharingBytes == 0,
               "a link's region starts at a multiple of {} bytes", kFalseSharingBytes);
}

// The header of a region that Format() or the other process made, after a check of its identity.
ShmLinkHeader* CheckedHeader(std::span<std::byte> region, const ShmLinkShape& shape) {
  CheckRegion(region, shape);
  auto* header = std::launder(reinterpret_cast<ShmLinkHeader*>(region.data()));
  if (header->magic != kMagic) {
    throw Error(
        "shared-memory link: the region starts with {:#x}, not with a link's {:#x}: it was not formatted",
        header->magic, kMagic);
  }
  if (header->version != kVersion) {
    throw Error(
        "shared-memory link: the region has version {}, this program version {}: start both processes "
        "from the same build",
        header->version, kVersion);
  }
  if (header->slots != shape.slots || header->frame_bytes != shape.frame_bytes) {
    throw Error(
        "shared-memory link: the region has {} slots of {} bytes, expected {} of {}: the two processes "
        "were started with different models or manifests",
        header->slots, header->frame_bytes, shape.slots, shape.frame_bytes);
  }
  return header;
}

}  // namespace

size_t ShmLinkShape::bytes() const {
  if (frame_bytes == 0 || frame_bytes > kMaxFrameBytes || slots == 0 || slots > kMaxSlots) {
    throw Error("link: {} slots of {} bytes: expected 1..{} slots of 1 byte to {} bytes", slots, frame_bytes,
                kMaxSlots, kMaxFrameBytes);
  }
  return sizeof(ShmLinkHeader) + slots * Stride(*this);
}

void ShmLink::Format(std::span<std::byte> region, const ShmLinkShape& shape, uint32_t first_sequence) {
  CheckRegion(region, shape);
  auto* header = new (region.data()) ShmLinkHeader{};
  header->magic = kMagic;
  header->version = kVersion;
  header->slots = static_cast<uint32_t>(shape.slots);
  header->frame_bytes = shape.frame_bytes;
  header->first_sequence = first_sequence;
  header->sent.count.store(first_sequence, std::memory_order_relaxed);
  // release: for threads to which only the region is handed over; processes synchronise by their Unix socket
  header->received.count.store(first_sequence, std::memory_order_release);
}

ShmLink::ShmLink(std::span<std::byte> region, const ShmLinkShape& shape, LinkSide side)
    : shape_(shape),
      stride_(Stride(shape)),
      side_(side),
      header_(CheckedHeader(region, shape)),
      slots_(region.data() + sizeof(ShmLinkHeader)),
      position_(header_->first_sequence),
      other_(position_) {  // not read a second time: the other process may write there
  const bool sends = side == LinkSide::kSend;
  const uint32_t own = (sends ? header_->sent : header_->received).count.load(std::memory_order_acquire);
  if (own != position_) {
    throw Error("shared-memory link: {} frames were {} here before: a region serves one run, make a new one",
                own - position_, sends ? "sent" : "received");
  }
}

}  // namespace larder::rdma::shm
