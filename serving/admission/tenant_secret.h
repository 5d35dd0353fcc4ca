// The secret with which tenants are computed from API keys (api_keys.h). Files that a server keeps
// for clients name their tenant; without the secret nobody can find the key from that name, or test
// a guess.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace larder::serving::inline admission {

using TenantSecret = std::array<uint8_t, 32>;

// A random secret, for a server that keeps no files.
TenantSecret NewTenantSecret();

// The secret of a server that keeps files in these folders. Each folder has it in a file that only
// the server's user may read (kTenantSecretFile). It is made once, and copied to folders that lack
// it, so that it stays the same whichever of its folders a server is started with. Without folders
// it is random. Throws Error if a folder or file can't be made or read, if a file belongs to
// another user, is open to others or is damaged, or if two folders have different secrets.
TenantSecret KeptTenantSecret(const std::vector<std::string>& folders);

// No file that a client names may begin with a dot.
inline constexpr char kTenantSecretFile[] = ".tenants";

}  // namespace larder::serving::admission
