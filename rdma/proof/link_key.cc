#include "rdma/proof/link_key.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/descriptor.h"
#include "base/error.h"

namespace larder::rdma::inline proof {
namespace {

constexpr const char* kHowToMake =
    "`larder-cluster key` makes one, or `openssl rand -hex 32 > link.key; chmod 600 link.key`";

// A buffer that is wiped when it is destroyed.
struct Secret {
  ~Secret() { sodium_memzero(this, sizeof(*this)); }
  char text[1024];
  uint8_t bytes[LinkKey::kBytes];
};

}  // namespace

LinkKey::LinkKey(const uint8_t (&bytes)[kBytes]) {
  LARDER_CHECK(sodium_init() >= 0);
  bytes_ = static_cast<uint8_t*>(sodium_malloc(kBytes));
  if (bytes_ == nullptr) throw Error("link key: no memory for it");
  std::memcpy(bytes_, bytes, kBytes);
  open_ = sodium_is_zero(bytes_, kBytes) != 0;
  sodium_mprotect_readonly(bytes_);
}

LinkKey::~LinkKey() { sodium_free(bytes_); }  // wipes it

const LinkKey& LinkKey::Open() {
  static const uint8_t kZeros[kBytes] = {};
  static const LinkKey key(kZeros);
  return key;
}

std::shared_ptr<const LinkKey> LinkKey::Load(const std::string& path, bool credential) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about = {};
  if (!file || fstat(file.get(), &about) != 0)
    throw Error("link key {}: {}: {}", path, std::strerror(errno), kHowToMake);
  if (!S_ISREG(about.st_mode)) throw Error("link key {}: is not a file: {}", path, kHowToMake);
  if (!credential && (about.st_mode & 077) != 0) {
    throw Error(
        "link key {}: others may read it (mode {:04o}): `chmod 600 {}`, and make a new one if they "
        "did",
        path, about.st_mode & 07777, path);
  }
  Secret secret;
  size_t bytes = 0;
  for (ssize_t more = 1; more > 0 && bytes < sizeof(secret.text);
       bytes += static_cast<size_t>(more)) {
    more = read(file.get(), secret.text + bytes, sizeof(secret.text) - bytes);
    if (more < 0) throw Error("link key {}: {}", path, std::strerror(errno));
  }
  size_t begin = 0, end = bytes;
  const auto blank = [&](size_t i) { return std::strchr(" \t\r\n", secret.text[i]) != nullptr; };
  while (begin < end && blank(begin)) ++begin;
  while (end > begin && blank(end - 1)) --end;
  if (credential && begin == end) return nullptr;
  size_t decoded = 0;
  if (end - begin != 2 * kBytes ||
      sodium_hex2bin(secret.bytes, kBytes, secret.text + begin, end - begin, nullptr, &decoded,
                     nullptr) != 0 ||
      decoded != kBytes) {
    throw Error(
        "link key {}: expected {} hexadecimal digits and nothing else (it has {} characters): {}",
        path, 2 * kBytes, end - begin, kHowToMake);
  }
  if (sodium_is_zero(secret.bytes, kBytes) != 0)
    throw Error("link key {}: all zeros is not a secret: {}", path, kHowToMake);
  return std::make_shared<const LinkKey>(secret.bytes);
}

}  // namespace larder::rdma::proof
