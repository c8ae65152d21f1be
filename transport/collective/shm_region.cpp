#include "transport/collective/shm_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>

namespace copse {
namespace {

constexpr std::size_t slot_bytes_max = 64u << 20;
constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW;

bool valid_world_size(int size) {
  return size == 1 || size == 2 || size == 4 || size == 8;
}

bool valid_slot_bytes(std::size_t bytes) {
  return bytes >= cache_line && bytes <= slot_bytes_max && bytes % cache_line == 0;
}

Error io_error(const char* message) {
  return Error{ErrorCode::io, "collective", message};
}

// Closes a descriptor unless it is handed on.
class OwnedFd {
 public:
  explicit OwnedFd(int fd) : fd_(fd) {}
  ~OwnedFd() {
    if (fd_ >= 0) close(fd_);
  }
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

Status initialise(int fd, const ShmOptions& options) {
  void* base = mmap(nullptr, sizeof(ShmHeader), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return io_error("the region cannot be mapped");
  auto* header = new (base) ShmHeader;
  header->world_size = options.world_size;
  header->slot_bytes = options.slot_bytes;
  header->version = shm_version;
  header->magic = shm_magic;
  munmap(base, sizeof(ShmHeader));
  return {};
}

}  // namespace

std::size_t shm_collective_bytes(const ShmOptions& options) {
  const std::size_t slots = 2 * static_cast<std::size_t>(options.world_size);
  return sizeof(ShmHeader) + slots * options.slot_bytes;
}

Result<int> create_shm_region(const ShmOptions& options) {
  if (!valid_world_size(options.world_size)) {
    return Error{ErrorCode::invalid_argument, "world_size", "must be 1, 2, 4 or 8"};
  }
  if (!valid_slot_bytes(options.slot_bytes)) {
    return Error{ErrorCode::invalid_argument, "slot_bytes",
                 "must be a multiple of 64 from 64 bytes to 64 MiB"};
  }
  OwnedFd fd(memfd_create("copse-collective", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.get() < 0) return io_error("memfd_create failed");
  // Allocated here, so that a lack of memory is this error and not a SIGBUS of some rank later.
  const auto bytes = static_cast<off_t>(shm_collective_bytes(options));
  if (posix_fallocate(fd.get(), 0, bytes) != 0) {
    return Error{ErrorCode::resource_exhausted, "collective", "no memory for the region"};
  }
  COPSE_RETURN_IF_ERROR(initialise(fd.get(), options));
  if (fcntl(fd.get(), F_ADD_SEALS, size_seals | F_SEAL_SEAL) != 0) {
    return io_error("the region cannot be sealed");
  }
  return fd.release();
}

Result<ShmRegion> ShmRegion::attach(int fd) {
  const Error malformed{ErrorCode::malformed, "collective", "not a region of this version"};
  struct stat status {};
  if (fstat(fd, &status) != 0) return io_error("the region's descriptor is not open");
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & size_seals) != size_seals) return malformed;
  const auto bytes = static_cast<std::size_t>(status.st_size);
  if (bytes < sizeof(ShmHeader)) return malformed;
  // Populated now: a page fault on the step path would be an allocation there.
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (base == MAP_FAILED) return io_error("the region cannot be mapped");
  auto mapping = std::make_shared<Mapping>(base, bytes);
  const ShmHeader& header = mapping->header();
  const bool ours = header.magic == shm_magic && header.version == shm_version &&
                    valid_world_size(header.world_size) && valid_slot_bytes(header.slot_bytes) &&
                    bytes == shm_collective_bytes({header.world_size, header.slot_bytes});
  if (!ours) return malformed;
  return ShmRegion(std::move(mapping));
}

void ShmRegion::abort() noexcept {
  mapping_->fail({ErrorCode::aborted});
}

ShmRegion::Mapping::~Mapping() {
  munmap(base_, bytes_);
}

std::byte* ShmRegion::Mapping::slot(std::uint32_t sequence, int rank) const {
  const ShmHeader& shared = header();
  const auto index =
      static_cast<std::size_t>(sequence & 1u) * static_cast<std::size_t>(shared.world_size) +
      static_cast<std::size_t>(rank);
  return static_cast<std::byte*>(base_) + sizeof(ShmHeader) + index * shared.slot_bytes;
}

void ShmRegion::Mapping::fail(ShmFailure failure) noexcept {
  ShmHeader& shared = header();
  const std::uint32_t packed = (1u << 25) | (failure.parity << 24) |
                               (static_cast<std::uint32_t>(failure.code) << 16) |
                               (static_cast<std::uint32_t>(failure.first_rank) << 8) |
                               static_cast<std::uint32_t>(failure.second_rank);
  std::uint32_t none = 0;
  shared.failure.compare_exchange_strong(none, packed);
  // Not left to the winner of the exchange: it may be stopped right here.
  shared.done.fetch_or(poison_bit);
  futex_wake_all(shared.done);
}

ShmFailure ShmRegion::Mapping::failure() const {
  const std::uint32_t packed = header().failure.load();
  return {static_cast<ErrorCode>((packed >> 16) & 0xffu), static_cast<int>((packed >> 8) & 0xffu),
          static_cast<int>(packed & 0xffu), (packed >> 24) & 1u};
}

}  // namespace copse
