// The manifest's keys about reaching a socket: addresses, ports, ssh targets and links. Used by the
// manifest's files only.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "pipeline/manifest/fields.h"
#include "pipeline/manifest/manifest.h"

namespace larder::pipeline::inline manifest {

constexpr bool IsAlnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
// A decimal number of 0 to `most`, digits only.
std::optional<int> ParseNumber(std::string_view text, int most);
// HOST, HOST:PORT or [IPV6]:PORT. HOST consists of letters, digits, '-' and '.' and begins with a
// letter or a digit, or is an IPv6 address in brackets.
bool IsAddress(std::string_view text);
// [USER@]HOST[:PORT], in characters that are safe on a command line and do not begin an option.
// HOST may be a name from ssh's configuration. `larder-cluster` has the same grammar.
bool IsSshTarget(std::string_view text);

void ReadPort(Fields& fields, std::optional<uint16_t>* port);
void ReadLink(Fields& fields, LinkSpec* link);

// Throws Error if two sockets would listen at the same endpoint, or if the ends of a link ask for
// different transports.
void CheckLinks(const Manifest& manifest);

}  // namespace larder::pipeline::manifest
