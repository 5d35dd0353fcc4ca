#include "rdma/common/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/error_testing.h"

namespace larder::rdma::inline common {
namespace {

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(SharedMemory, IsZeroAndSaysWhatItGot) {
  const SharedMemory memory = SharedMemory::Create(100001, "larder test");
  ASSERT_NE(memory.data(), nullptr);
  EXPECT_EQ(memory.bytes(), 100001u);
  EXPECT_EQ(memory.span().size(), 100001u);
  for (const std::byte byte : memory.span()) ASSERT_EQ(byte, std::byte{0});
  // reserved huge pages are the best; without them the notes say why
  EXPECT_EQ(memory.notes().empty(), memory.backing() == topology::Backing::kHugeTlb)
      << memory.notes();
}

TEST(SharedMemory, TwoMappingsAreOneMemory) {
  SharedMemory one = SharedMemory::Create(5000, "larder test");
  SharedMemory two = SharedMemory::Attach(dup(one.fd()), 5000);
  EXPECT_NE(one.data(), two.data());
  one.data()[4999] = std::byte{7};
  EXPECT_EQ(two.data()[4999], std::byte{7});
  one = SharedMemory();  // the other one's stays
  EXPECT_EQ(two.data()[4999], std::byte{7});
}

TEST(SharedMemory, CannotBeResizedOrUnsealed) {
  const SharedMemory memory = SharedMemory::Create(4 << 20, "larder test");
  for (const off_t size : {0, 2 << 20, 8 << 20}) {
    EXPECT_EQ(ftruncate(memory.fd(), size), -1);
    EXPECT_EQ(errno, EPERM);
  }
  EXPECT_EQ(fcntl(memory.fd(), F_ADD_SEALS, F_SEAL_WRITE), -1);
}

TEST(SharedMemory, AttachRefusesAnotherSize) {
  const SharedMemory memory = SharedMemory::Create(5000, "larder test");
  for (const size_t expected :
       {size_t{0}, size_t{4096}, size_t{4999}, size_t{5001}, size_t{16} << 20}) {
    if (memory.backing() == topology::Backing::kHugeTlb && expected != 0 &&
        expected <= kHugePageBytes)
      continue;
    const int fd = dup(memory.fd());
    EXPECT_NE(ErrorOf([&] { SharedMemory::Attach(fd, expected); }).find("expected"),
              std::string::npos)
        << expected;
    EXPECT_FALSE(IsOpen(fd));  // Attach takes ownership even if it throws
  }
}

TEST(SharedMemory, AttachRefusesWhatCouldShrink) {
  for (const int seals : {0, F_SEAL_SHRINK, F_SEAL_SHRINK | F_SEAL_GROW}) {
    const int fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(ftruncate(fd, 4096), 0);
    ASSERT_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
    EXPECT_NE(ErrorOf([&] { SharedMemory::Attach(fd, 4096); }).find("not sealed"),
              std::string::npos)
        << seals;
  }
}

TEST(SharedMemory, AttachRefusesWhatIsNoMemoryFile) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_NE(ErrorOf([&] { SharedMemory::Attach(ends[0], 4096); }).find("not sealed"),
            std::string::npos);
  close(ends[1]);
  EXPECT_NE(ErrorOf([] { SharedMemory::Attach(-1, 4096); }).find("not open"), std::string::npos);
}

TEST(SharedMemory, MovesAndLetsGo) {
  SharedMemory one = SharedMemory::Create(4096, "larder test");
  const int fd = one.fd();
  std::byte* data = one.data();
  SharedMemory two = std::move(one);
  EXPECT_EQ(two.data(), data);
  EXPECT_EQ(two.bytes(), 4096u);
  two = SharedMemory::Create(8192, "larder test");
  EXPECT_FALSE(IsOpen(fd));
  EXPECT_EQ(two.bytes(), 8192u);
}

TEST(SharedMemory, MoreThanThereIsIsAnErrorWithNumbers) {
  const std::string error = ErrorOf([] { SharedMemory::Create(size_t{1} << 50, "larder test"); });
  EXPECT_NE(error.find("1073741824 MB needed"), std::string::npos) << error;
  EXPECT_THROW(SharedMemory::Create(0, "larder test"), Error);
}

}  // namespace
}  // namespace larder::rdma::common
