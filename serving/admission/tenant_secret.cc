#include "serving/admission/tenant_secret.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/new_file.h"
#include "base/own_folder.h"

namespace larder::serving::inline admission {
namespace {

std::string PathIn(const std::string& folder) { return folder + "/" + kTenantSecretFile; }

// nullopt: there is none.
std::optional<TenantSecret> ReadSecret(const std::string& path) {
  // O_NONBLOCK: to open a pipe must not wait for its writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file && errno == ENOENT) return std::nullopt;
  struct stat about {};
  if (!file || ::fstat(file.get(), &about) != 0)
    throw Error("{}: can't open: {}", path, std::strerror(errno));
  if (!S_ISREG(about.st_mode) || about.st_uid != ::geteuid() || (about.st_mode & 077) != 0) {
    throw Error(
        "{}: expected a file of user {} with mode 600: it is the secret that tells keys apart",
        path, ::geteuid());
  }
  TenantSecret secret;
  // One byte more, to see that there is none.
  std::array<uint8_t, sizeof secret + 1> bytes;
  if (::read(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(secret.size())) {
    throw Error(
        "{}: expected {} bytes: damaged; without it the files in this folder belong to no key: "
        "restore it, or remove it with them",
        path, secret.size());
  }
  std::memcpy(secret.data(), bytes.data(), secret.size());
  return secret;
}

void WriteSecret(const std::string& path, const TenantSecret& secret) {
  const Descriptor file(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) throw Error("{}: can't create: {}", path, std::strerror(errno));
  try {
    WriteAll(file, {reinterpret_cast<const char*>(secret.data()), secret.size()}, path);
    if (::fsync(file.get()) != 0) throw Error("{}: can't write: {}", path, std::strerror(errno));
  } catch (const Error&) {
    ::unlink(path.c_str());
    throw;
  }
}

}  // namespace

TenantSecret NewTenantSecret() {
  LARDER_CHECK(sodium_init() >= 0);
  TenantSecret secret;
  randombytes_buf(secret.data(), secret.size());
  return secret;
}

TenantSecret KeptTenantSecret(const std::vector<std::string>& folders) {
  std::optional<TenantSecret> secret;
  std::string first;
  std::vector<std::string> without;
  for (const std::string& folder : folders) {
    const std::optional<TenantSecret> found = ReadSecret(PathIn(folder));
    if (!found) {
      without.push_back(folder);
    } else if (!secret) {
      secret = found;
      first = PathIn(folder);
    } else if (*secret != *found) {
      throw Error(
          "{} and {} are different: the files beside them belong to keys of different servers; "
          "name a folder that this server has had, or an empty one",
          first, PathIn(folder));
    }
  }
  if (!secret) secret = NewTenantSecret();
  for (const std::string& folder : without) {
    MakeFolder(folder);  // who keeps tokens there looks at its mode
    WriteSecret(PathIn(folder), *secret);
  }
  return *secret;
}

}  // namespace larder::serving::admission
