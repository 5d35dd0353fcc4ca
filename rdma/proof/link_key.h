// LinkKey: the secret that the processes of one cluster share. Links prove to each other that they have it
// before anything else is said (rdma/proof/link_proof.h). Kept in locked memory that no core dump has and
// that is wiped at the end; nothing prints it. Any thread may use a key; it never changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace larder::rdma {

class LinkKey {
 public:
  static constexpr size_t kBytes = 32;

  // Of a file with 64 hexadecimal digits, white space around them allowed. Error if it is anything else, of
  // zeros only, or if others than its owner may read it. credential: it is one of systemd's, which guards
  // it; a blank one, the unit's default where a server has no key, is null.
  static std::shared_ptr<const LinkKey> Load(const std::string& path, bool credential = false);
  // What links use that have none: known to everybody, so it proves nothing. One protocol for both, and
  // nobody on the way is told whether there is a key.
  static const LinkKey& Open();
  static const LinkKey& Of(const std::shared_ptr<const LinkKey>& key) { return key ? *key : Open(); }

  explicit LinkKey(const uint8_t (&bytes)[kBytes]);
  ~LinkKey();
  LinkKey(const LinkKey&) = delete;
  LinkKey& operator=(const LinkKey&) = delete;

  const uint8_t* data() const { return bytes_; }
  bool open() const { return open_; }

 private:
  uint8_t* bytes_;
  bool open_ = false;
};

}  // namespace larder::rdma
