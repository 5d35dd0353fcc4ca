// The secret under which tenants are made from API keys (api_keys.h). Files that a server keeps for
// clients say whose they are; without the secret nobody can tell a key from that, or test a guess.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace larder::serving::inline admission {

using TenantSecret = std::array<uint8_t, 32>;

// A random one, for a server that keeps no files.
TenantSecret NewTenantSecret();

// The secret of a server that keeps files in these folders, in a file of each that only its user
// may read (kTenantSecretFile): made once, and copied to a folder that has none, so that a server
// has one secret, whichever of its folders it is started with. Without folders it is a random one.
// Throws Error: a folder or a file can't be made or read, a file is another user's, open to others
// or damaged, or two folders have different secrets.
TenantSecret KeptTenantSecret(const std::vector<std::string>& folders);

// No file that a client names may begin with a dot.
inline constexpr char kTenantSecretFile[] = ".tenants";

}  // namespace larder::serving::admission
