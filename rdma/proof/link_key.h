// LinkKey: the secret that the processes of one cluster share. Links prove to each other that they
// have it before they say anything else (rdma/proof/link_proof.h). It is kept in locked memory that
// is excluded from core dumps and wiped at the end; nothing prints it. Any thread may use a key; it
// never changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace larder::rdma::inline proof {

class LinkKey {
 public:
  static constexpr size_t kBytes = 32;

  // Reads a file with 64 hexadecimal digits, with or without white space around them. Throws Error
  // if the file has other contents, the key is all zeros, or users other than its owner may read
  // it. credential: the file is a systemd credential, which systemd protects; an empty one (the
  // unit's default on a server without a key) returns null.
  static std::shared_ptr<const LinkKey> Load(const std::string& path, bool credential = false);
  // The key of links that have no key. It is public, so it proves nothing. With it the protocol is
  // the same with and without a key, and an observer cannot tell which is used.
  static const LinkKey& Open();
  static const LinkKey& Of(const std::shared_ptr<const LinkKey>& key) {
    return key ? *key : Open();
  }

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

}  // namespace larder::rdma::proof
