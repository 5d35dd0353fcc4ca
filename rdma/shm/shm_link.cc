// Set-up of a ShmLink: sizes, formatting, attaching.
#include "rdma/shm/shm_link.h"

#include <new>

#include "base/error.h"

namespace larder::rdma::inline shm {
namespace {

constexpr uint64_t kMagic = 0x4b4e494c4d48534cull;  // "LSHMLINK"
constexpr uint32_t kVersion = 2;

void CheckRegion(std::span<std::byte> region, const LinkShape& shape) {
  const size_t needed = ShmLink::RegionBytes(shape);
  if (region.size() < needed) {
    throw Error("shared-memory link: {} slots of {} bytes need {} bytes, the region has {}",
                shape.slots, shape.frame_bytes, needed, region.size());
  }
  LARDER_CHECK(reinterpret_cast<uintptr_t>(region.data()) % kFalseSharingBytes == 0,
               "a link's region starts at a multiple of {} bytes", kFalseSharingBytes);
}

// The header of a region that Format() or the other process made, after a check of its identity.
ShmLinkHeader* CheckedHeader(std::span<std::byte> region, const LinkShape& shape) {
  CheckRegion(region, shape);
  auto* header = std::launder(reinterpret_cast<ShmLinkHeader*>(region.data()));
  if (header->magic != kMagic) {
    throw Error(
        "shared-memory link: the region starts with {:#x}, not with a link's {:#x}: it was not "
        "formatted",
        header->magic, kMagic);
  }
  if (header->version != kVersion) {
    throw Error(
        "shared-memory link: the region has version {}, this program version {}: start both "
        "processes from the same build",
        header->version, kVersion);
  }
  if (header->slots != shape.slots || header->frame_bytes != shape.frame_bytes) {
    throw Error(
        "shared-memory link: the region has {} slots of {} bytes, expected {} of {}: the two "
        "processes were started with different models or manifests",
        header->slots, header->frame_bytes, shape.slots, shape.frame_bytes);
  }
  return header;
}

}  // namespace

size_t ShmLink::RegionBytes(const LinkShape& shape) {
  return sizeof(ShmLinkHeader) + shape.slots * shape.SlotStride(kSlotHeaderBytes);
}

void ShmLink::Format(std::span<std::byte> region, const LinkShape& shape, uint32_t first_sequence) {
  CheckRegion(region, shape);
  auto* header = new (region.data()) ShmLinkHeader{};
  header->magic = kMagic;
  header->version = kVersion;
  header->slots = static_cast<uint32_t>(shape.slots);
  header->frame_bytes = shape.frame_bytes;
  header->first_sequence = first_sequence;
  header->sent.count.store(first_sequence, std::memory_order_relaxed);
  // release: for threads to which only the region is handed over; processes synchronise by their
  // Unix socket
  header->received.count.store(first_sequence, std::memory_order_release);
}

ShmLink::ShmLink(std::span<std::byte> region, const LinkShape& shape, LinkSide side)
    : shape_(shape),
      stride_(shape.SlotStride(kSlotHeaderBytes)),
      side_(side),
      header_(CheckedHeader(region, shape)),
      slots_(region.data() + sizeof(ShmLinkHeader)),
      position_(header_->first_sequence),
      other_(position_) {  // not read a second time: the other process may write there
  const bool sends = side == LinkSide::kSend;
  const uint32_t own =
      (sends ? header_->sent : header_->received).count.load(std::memory_order_acquire);
  if (own != position_) {
    throw Error(
        "shared-memory link: {} frames were {} here before: a region serves one run, make a new "
        "one",
        own - position_, sends ? "sent" : "received");
  }
}

}  // namespace larder::rdma::shm
