// SPDX-License-Identifier: Apache-2.0
// elf.cpp -- see elf.h.
#include "core/elf.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "core/error.h"

namespace narrows {
namespace {

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
#error "Narrows runs on x86-64 and arm64"
#endif

struct File {
  int fd;
  ~File() {
    if (fd >= 0) close(fd);
  }
  bool read(void* out, size_t size, uint64_t offset) const {
    return pread(fd, out, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
  }
};

std::string refuse_header(const Elf64_Ehdr& header) {
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return "not an ELF file";
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
    return "not a 64-bit little-endian ELF file";
  if (header.e_machine != kMachine)
    return format("built for another machine (ELF machine %d, this one is %d)", header.e_machine, kMachine);
  if (header.e_type != ET_DYN) return format("not a shared object (ELF type %d, expected %d)", header.e_type, ET_DYN);
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum == 0) return "damaged: no program headers";
  return "";
}

std::string refuse_segments(const File& file, const Elf64_Ehdr& header, uint64_t file_size) {
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  if (!file.read(segments.data(), segments.size() * sizeof segments[0], header.e_phoff))
    return "truncated: program headers missing";
  bool dynamic = false;
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_LOAD && segment.p_type != PT_DYNAMIC) continue;
    uint64_t end = 0;
    if (__builtin_add_overflow(segment.p_offset, segment.p_filesz, &end) || end > file_size)
      return format("truncated: %llu bytes, a segment ends at %llu", static_cast<unsigned long long>(file_size),
                    static_cast<unsigned long long>(end));
    dynamic |= segment.p_type == PT_DYNAMIC;
  }
  // The section headers stand last in a file: where they are missing, the end is.
  const uint64_t sections_end = header.e_shoff + uint64_t{header.e_shnum} * header.e_shentsize;
  if (header.e_shoff != 0 && (sections_end < header.e_shoff || sections_end > file_size))
    return "truncated: section headers missing";
  return dynamic ? "" : "damaged: no dynamic segment";
}

}  // namespace

std::string elf_error(const std::string& path) {
  const File file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return format("cannot be opened: %s", strerror(errno));
  struct stat status;
  if (fstat(file.fd, &status) != 0) return format("cannot be read: %s", strerror(errno));
  if (S_ISDIR(status.st_mode)) return "a directory, not a file";
  if (!S_ISREG(status.st_mode)) return "not a regular file";
  Elf64_Ehdr header;
  if (status.st_size < static_cast<off_t>(sizeof header) || !file.read(&header, sizeof header, 0))
    return status.st_size == 0 ? "an empty file" : "not an ELF file: shorter than an ELF header";
  const std::string reason = refuse_header(header);
  return reason.empty() ? refuse_segments(file, header, static_cast<uint64_t>(status.st_size)) : reason;
}

}  // namespace narrows
