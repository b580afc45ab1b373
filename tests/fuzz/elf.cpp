// SPDX-License-Identifier: Apache-2.0
// elf.cpp -- fuzz target: core's check of a plugin file before dlopen (core/elf.h), on a small shared object that is damaged by the
// input: cut, extended, and with bytes of its ELF header and program headers replaced.
//
// What is demanded of the check:
//   - it says yes to the undamaged image, and that one loads;
//   - it says no, with a reason, to a file whose ELF header is not this machine's, whose program headers, loaded segments, dynamic
//     segment or section headers do not lie in the file, or that has no dynamic segment: the rule is written down here a second
//     time;
//   - a file that it lets through never makes dlopen touch what is not in the file, which is SIGBUS, or hang; and one that is only
//     cut or extended makes it touch nothing wrong at all. Other signals are no finding: dlopen believes the addresses in program
//     headers and dynamic sections, and to load a plugin is to trust it (SECURITY.md).
// dlopen is tried in a child process. The image's own code is never called, and no input changes anything that could be.
#include "core/elf.h"

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstring>
#include <string>

#include "bytes.h"
#include "finding.h"

namespace narrows::fuzz {
namespace {

#if defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
constexpr uint16_t kMachine = EM_X86_64;
#endif
constexpr uint64_t kData = 0x10000;  // address of the writable copy; a multiple of every page size

// All of a shared object that exports one function. Both segments map the whole file, the second one writable.
struct Image {
  Elf64_Ehdr header;
  Elf64_Phdr code, data, dynamic_segment, stack;
  Elf64_Sym symbols[2];
  uint32_t hash[6];  // one bucket, two symbols, and padding
  char strings[24];
  Elf64_Dyn dynamic[6];
  uint64_t function;
  Elf64_Shdr section;
};
constexpr size_t kHeaders = offsetof(Image, symbols);  // the bytes that an input may replace

Image make_image() {
  Image i{};
  std::memcpy(i.header.e_ident, "\177ELF\2\1\1", 7);  // 64-bit, little-endian, version 1
  i.header.e_type = ET_DYN;
  i.header.e_machine = kMachine;
  i.header.e_version = EV_CURRENT;
  i.header.e_phoff = offsetof(Image, code);
  i.header.e_shoff = offsetof(Image, section);
  i.header.e_ehsize = sizeof(Elf64_Ehdr);
  i.header.e_phentsize = sizeof(Elf64_Phdr);
  i.header.e_phnum = 4;
  i.header.e_shentsize = sizeof(Elf64_Shdr);
  i.header.e_shnum = 1;
  i.code = {PT_LOAD, PF_R | PF_X, 0, 0, 0, sizeof i, sizeof i, kData};
  i.data = {PT_LOAD, PF_R | PF_W, 0, kData, kData, sizeof i, sizeof i + 256, kData};
  const uint64_t at = offsetof(Image, dynamic);
  i.dynamic_segment = {PT_DYNAMIC, PF_R | PF_W, at, kData + at, kData + at, sizeof i.dynamic, sizeof i.dynamic, 8};
  i.stack = {PT_GNU_STACK, PF_R | PF_W, 0, 0, 0, 0, 0, 16};
  i.symbols[1] = {1, ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), STV_DEFAULT, 1, offsetof(Image, function), 8};
  const uint32_t hash[] = {1, 2, 1, 0, 0};
  std::memcpy(i.hash, hash, sizeof hash);
  std::memcpy(i.strings, "\0narrows_plugin_query", 22);
  const Elf64_Dyn dynamic[] = {{DT_HASH, {offsetof(Image, hash)}},      {DT_SYMTAB, {offsetof(Image, symbols)}},
                               {DT_STRTAB, {offsetof(Image, strings)}}, {DT_STRSZ, {sizeof i.strings}},
                               {DT_SYMENT, {sizeof(Elf64_Sym)}},        {DT_NULL, {0}}};
  std::memcpy(i.dynamic, dynamic, sizeof dynamic);
  return i;
}

struct File {
  std::vector<uint8_t> bytes;
  bool damaged = false;  // more than its length
};

// A size, then replacements: an offset, how many bytes, and those.
File make_file(Bytes in) {
  static const Image image = make_image();
  const auto* first = reinterpret_cast<const uint8_t*>(&image);
  File file{{first, first + sizeof image}, false};
  if (in.flag()) file.bytes.resize(in.number<uint16_t>() % (8 * sizeof image));
  while (!in.empty()) {
    const size_t offset = in.number<uint16_t>() % kHeaders, count = in.pick({1u, 2u, 4u, 8u});
    for (size_t i = offset; i < offset + count && i < kHeaders; ++i) {
      const uint8_t value = in.byte();
      if (i >= file.bytes.size() || file.bytes[i] == value) continue;
      file.bytes[i] = value;
      file.damaged = true;
    }
  }
  return file;
}

// The second writing of the rule, in 128-bit arithmetic. "" where the file has all that its headers speak of.
std::string fault(const std::vector<uint8_t>& bytes) {
  const auto inside = [&](unsigned __int128 begin, unsigned __int128 size) { return begin + size <= bytes.size(); };
  Elf64_Ehdr h;
  if (!inside(0, sizeof h)) return "no ELF header";
  std::memcpy(&h, bytes.data(), sizeof h);
  if (std::memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_ident[EI_DATA] != ELFDATA2LSB)
    return "no ELF file of 64 bits, little-endian";
  if (h.e_machine != kMachine || h.e_type != ET_DYN) return "no shared object of this machine";
  if (h.e_phentsize != sizeof(Elf64_Phdr) || !inside(h.e_phoff, size_t{h.e_phnum} * sizeof(Elf64_Phdr)))
    return "program headers outside";
  if (h.e_shoff != 0 && !inside(h.e_shoff, size_t{h.e_shnum} * h.e_shentsize)) return "section headers outside";
  bool dynamic = false;
  for (size_t i = 0; i < h.e_phnum; ++i) {
    Elf64_Phdr p;
    std::memcpy(&p, bytes.data() + h.e_phoff + i * sizeof p, sizeof p);
    if (p.p_type != PT_LOAD && p.p_type != PT_DYNAMIC) continue;
    if (!inside(p.p_offset, p.p_filesz)) return "a segment outside";
    dynamic = dynamic || p.p_type == PT_DYNAMIC;
  }
  return dynamic ? "" : "no dynamic segment";
}

// What became of the child that loads it: its exit code (0: it has the symbol), or minus the signal.
int load(const std::string& path) {
  const pid_t child = fork();
  if (child < 0) finding("fork failed");
  if (child == 0) {
    for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGALRM, SIGXCPU}) std::signal(signal, SIG_DFL);
    const rlimit none{0, 0}, seconds{5, 5};
    setrlimit(RLIMIT_CORE, &none);
    setrlimit(RLIMIT_CPU, &seconds);
    alarm(20);
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    _exit(library == nullptr ? 1 : dlsym(library, "narrows_plugin_query") == nullptr ? 2 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

void check(const File& file) {
  static const int fd = memfd_create("narrows-fuzz-elf", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (ftruncate(fd, 0) != 0 || pwrite(fd, file.bytes.data(), file.bytes.size(), 0) != static_cast<ssize_t>(file.bytes.size()))
    finding("no file in memory can be written");
  const std::string reason = elf_error(path), expected = fault(file.bytes);
  if (reason.empty() && !expected.empty()) finding("let through, though it has %s", expected.c_str());
  if (!reason.empty() && expected.empty()) finding("refused, though it has all it speaks of: %s", reason.c_str());
  if (!reason.empty()) return;
  const int outcome = load(path);
  if (outcome == -SIGBUS || outcome == -SIGALRM || outcome == -SIGXCPU || outcome == -SIGKILL)
    finding("let through, and dlopen ends by signal %d", -outcome);
  if (!file.damaged && outcome != 0) finding("%zu bytes of an undamaged image give %d", file.bytes.size(), outcome);
}

}  // namespace
}  // namespace narrows::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  narrows::fuzz::check(narrows::fuzz::make_file({data, size}));
  return 0;
}
