// The manifest's keys about reaching a socket: addresses, ports, ssh targets and links. Used by the
// manifest's files only.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "pipeline/manifest/fields.h"
#include "pipeline/manifest/manifest.h"

namespace larder::pipeline {

constexpr bool IsAlnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}
// A decimal number of 0 to `most`, digits only.
std::optional<int> ParseNumber(std::string_view text, int most);
// HOST, HOST:PORT or [IPV6]:PORT; a host of letters, digits, '-', '.', beginning with one of the first two,
// or an IPv6 address in brackets.
bool IsAddress(std::string_view text);
// [USER@]HOST[:PORT], which no command line can mistake for an option or anything else; HOST may be a name of
// ssh's configuration. `larder-cluster` has the same grammar.
bool IsSshTarget(std::string_view text);

void ReadPort(Fields& fields, std::optional<uint16_t>* port);
void ReadLink(Fields& fields, LinkSpec* link);

// Error for two sockets that would listen at one place, and for transports that the ends of a link can't
// both have.
void CheckLinks(const Manifest& manifest);

}  // namespace larder::pipeline
