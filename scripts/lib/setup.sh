# SPDX-License-Identifier: Apache-2.0
# setup.sh -- what ./run needs on the machine: checks for it, and installs what is missing.
# A thing is looked for itself (a command, a header), not its package: what a user installed in another way counts too.
# Nothing in /etc/apt is read for anything but the mirror's address, and nothing there is written.

NARROWS_INSTALL=yes
readonly LOG=$NARROWS_ROOT/build/log
readonly DEPS=$NARROWS_ROOT/.deps

# ---- steps on the terminal ----

say() { printf '%s\n' "$*"; }
fail() {
  printf '\nrun: %s\n' "$1" >&2
  exit "${2:-1}"
}

begin() {
  say "narrows $1"
  step_number=0 step_count=$2
  mkdir -p "$LOG"
}
# step NAME ... done_with TEXT: one line on the terminal, "[2/4] build      412 files in 71 s".
step() {
  step_number=$((step_number + 1))
  step_line=$(printf '[%d/%d] %-10s' "$step_number" "$step_count" "$1")
  step_start=$SECONDS
  [ ! -t 1 ] || printf '%s ...' "$step_line"
}
progress() { [ ! -t 1 ] || printf '\r\033[K%s %s' "$step_line" "$1"; }
done_with() {
  [ ! -t 1 ] || printf '\r\033[K'
  say "$step_line $1"
}
# logged FILE COMMAND...: its output goes to build/log/FILE; if it fails, the tail of that is shown.
logged() {
  local log=$LOG/$1
  shift
  "$@" >"$log" 2>&1 || {
    show_tail "$log"
    [ "$1" != retried ] || shift
    fail "'$1' failed; the whole log is $log"
  }
}
# retried COMMAND...: three times at most, for what downloads.
retried() {
  local i
  for i in 1 2; do
    "$@" && return
    sleep $((10 * i))
  done
  "$@"
}
show_tail() {
  [ ! -t 1 ] || printf '\n'
  tail -n 30 "$1" | sed 's/^/    /' >&2
}

# ---- what is needed: a package | how its presence is seen | what it is for ----

readonly NEEDS_build='
cmake | cmake_version 3.25 | configures the build
ninja-build | command ninja | runs the build
g++ | command c++ | compiles C and C++20
pkg-config | command pkg-config | finds libraries
libhwy-dev | package libhwy | Highway: one source for every instruction set
libsleef-dev | library sleef | SLEEF: the mathematical functions that Highway lacks
libxxhash-dev | header xxhash.h | hashes the keys of the plan cache
libisl-dev | header isl/ctx.h | isl: proves that a schedule of a tensor program keeps its result
libcli11-dev | header CLI/CLI.hpp | command line of narrows
nlohmann-json3-dev | header nlohmann/json.hpp | narrows --json
python3-venv | dlpack_or_venv | fetches dlpack.h 1.3 from PyPI'
readonly NEEDS_demo='
alsa-utils | file /usr/share/sounds/alsa/Front_Center.wav | recorded speech'
readonly NEEDS_test='
catch2 | header catch2/catch_test_macros.hpp | test framework, version 3
python3 | command python3 | a caller in Python; the summary of the tests
clang | command clang++ | compiles the headers a second time
rustc | command rustc | a caller in Rust
golang-go | command go | a caller in Go
binutils | command readelf | lists what the libraries export
pahole | command pahole | lists the layout of every struct
valgrind | command valgrind | runs a caller in C, and sees what it leaks'
readonly NEEDS_vulkan='
libvulkan-dev | header vulkan/vulkan.h | Vulkan: its headers and its loader
libvulkan-volk-dev | header volk.c | volk: opens the loader at run time
spirv-headers | header spirv/unified1/spirv.h | names what is in a shader
glslc | command glslc | shaderc: compiles the shaders
libshaderc-dev | header shaderc/shaderc.h | shaderc: compiles tensor programs at run time
glslang-dev | header glslang/Include/BaseTypes.h | a part of shaderc, where its own library cannot be loaded
spirv-tools | command spirv-val | the other part; checks what programs are compiled to
python3-venv | python_module ensurepip | installs a newer compiler of shaders
mesa-vulkan-drivers | vulkan_driver | lavapipe: runs Vulkan on the CPU
vulkan-validationlayers | vulkan_layer | sees wrong uses of Vulkan'
readonly NEEDS_hip_amd='
hipcc | command hipcc | compiles the hip backend for AMD
libamdhip64-dev | library amdhip64 | HIP: its headers, and the runtime that the plugin needs'
readonly NEEDS_hip_emulated='
libboost-context-dev | library boost_context | Boost.Context: threads of a GPU as fibers'
readonly NEEDS_hip_nvidia='
clang-19 | command clang++-19 | compiles the hip backend for NVIDIA'
readonly NEEDS_python='
python3-venv | python_module ensurepip | fetches the frameworks that the tests use from PyPI
python3-dev | python_header | compiles the extension module
catch2 | header catch2/catch_test_macros.hpp | the conformance suite, which the package carries
pahole | command pahole | lists the layout of every struct: a release freezes it'
readonly NEEDS_docs='
doxygen | command doxygen | reads the comments of the headers
chromium | browser | opens the site'
readonly NEEDS_lint='
python3-venv | python_module ensurepip | fetches clang-format, clang-tidy and ruff from PyPI'
readonly NEEDS_fuzz='
clang | command clang++ | compiles the fuzz targets
libclang-rt-dev | fuzzer_runtime | libFuzzer and the sanitizers of clang'
# Cross compilation is tested on x86-64 only.
readonly NEEDS_cross='
g++-aarch64-linux-gnu | command aarch64-linux-gnu-g++ | compiles for arm64
qemu-user | command qemu-aarch64 | runs what was compiled for arm64'

has_command() { command -v "$1" >/dev/null 2>&1; }
has_file() { [ -e "$1" ]; }
has_package() { has_command pkg-config && pkg-config --exists "$1"; }
has_cmake_version() {
  local version
  version=$(cmake --version 2>/dev/null | sed -n '1s/[^0-9]*//p') && [ -n "$version" ] &&
    [ "$(printf '%s\n' "$1" "$version" | sort -V | head -n 1)" = "$1" ]
}
prefixes() { printf '%s\n' "$DEPS" ${CMAKE_PREFIX_PATH:+${CMAKE_PREFIX_PATH//[:;]/ }} /usr/local /usr; }
has_header() {
  local prefix
  while read -r prefix; do [ ! -e "$prefix/include/$1" ] || return 0; done < <(prefixes)
  has_command c++ && printf '#if !__has_include(<%s>)\n#error\n#endif\n' "$1" | c++ -x c++ -E - >/dev/null 2>&1
}
has_library() {
  local prefix
  while read -r prefix; do
    ! compgen -G "$prefix/lib*/lib$1.so" >/dev/null && ! compgen -G "$prefix/lib/*/lib$1.so" >/dev/null || return 0
  done < <(prefixes)
  return 1
}
has_python_module() { has_command python3 && python3 -c "import $1" 2>/dev/null; }
has_python_header() {
  has_command python3 && python3 -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
}
# A manifest in one of the folders that Vulkan's loader reads.
has_vulkan_manifest() {
  local folder
  for folder in /etc /usr/share /usr/local/share /usr/local/etc; do ! compgen -G "$folder/vulkan/$1" >/dev/null || return 0; done
  return 1
}
has_vulkan_driver() { [ -n "${VK_DRIVER_FILES:-${VK_ICD_FILENAMES:-}}" ] || has_vulkan_manifest 'icd.d/*.json'; }
has_vulkan_layer() { [ -n "${VK_LAYER_PATH:-}" ] || has_vulkan_manifest 'explicit_layer.d/VkLayer_khronos_validation.json'; }
has_browser() { browser_command >/dev/null; }
browser_command() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
has_dlpack_or_venv() { has_dlpack || has_python_module ensurepip; }

# missing GROUP...: prints "package<TAB>why" for each thing that is not there.
missing() {
  local group name package check why
  for group in "$@"; do
    name=NEEDS_$group
    while IFS='|' read -r package check why; do
      # shellcheck disable=SC2086 # the words of a check: its name and its argument
      [ -z "$package" ] || has_${check# } || printf '%s\t%s\n' "${package% }" "${why# }"
    done <<<"${!name}"
  done | sort -u -t "$(printf '\t')" -k 1,1
}

# require GROUP...: all of them are there afterwards, or ./run ends.
require() {
  local groups=("$@") list packages
  case " $* " in *" test "*) [ "$(uname -m)" != x86_64 ] || groups+=(cross) ;; esac
  step packages
  list=$(missing "${groups[@]}")
  if [ -z "$list" ]; then
    done_with "nothing to install"
    return
  fi
  mapfile -t packages < <(cut -f 1 <<<"$list")
  can_install || refuse_to_install "$list" "${packages[@]}"
  done_with "${#packages[@]} to install by apt-get$([ "$(id -u)" = 0 ] || printf ', through sudo'):"
  sed 's/^/      /' <<<"$list" | awk -F '\t' '{ printf "%-29s %s\n", $1, $2 }'
  install_packages "${packages[@]}"
  list=$(missing "${groups[@]}")
  [ -z "$list" ] || fail "apt-get has installed everything, but these are not found: $(cut -f 1 <<<"$list" | xargs)" 3
}

# ---- apt ----

can_install() {
  [ "$NARROWS_INSTALL" = yes ] && has_command apt-get && { [ "$(id -u)" = 0 ] || has_command sudo; }
}
refuse_to_install() {
  local list=$1
  shift
  done_with "missing:" >&2
  sed 's/^/      /' <<<"$list" | awk -F '\t' '{ printf "%-29s %s\n", $1, $2 }' >&2
  local reason="there is no apt-get here"
  if [ "$NARROWS_INSTALL" = no ]; then
    reason="--no-install was given"
  elif has_command apt-get; then
    reason="this user is not root, and there is no sudo"
  fi
  cat >&2 <<TEXT

run: ${#} missing; $reason. The packages' names are those of Debian and Ubuntu; this installs them:

  apt-get install --no-install-recommends $*

$(case " $* " in *" catch2 "*) printf 'On Debian 12 catch2 3 is in bookworm-backports. ' ;; esac)Libraries in a prefix of your own: set CMAKE_PREFIX_PATH.
With access to GitHub, cmake downloads the libraries that are missing: cmake --preset cpu -DNARROWS_FETCH=ON
TEXT
  exit 3
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n -- "$@"; fi; }
# sudo may ask for a password, once, and only where there is somebody to ask.
become_root() {
  [ "$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null || return 0
  [ -t 0 ] || fail "sudo wants a password, and there is no terminal to ask on: run this in one, or as root" 3
  sudo -v || fail "sudo refused" 3
}
apt_get() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -y -q -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" </dev/null \
    >>"$LOG/apt.log" 2>&1
}
apt_failed() {
  show_tail "$LOG/apt.log"
  fail "apt-get $1 failed; the whole log is $LOG/apt.log" 3
}
candidate() { LC_ALL=C apt-cache policy "$1" 2>/dev/null | sed -n 's/^ *Candidate: \([^(].*\)/\1/p'; }
any_unknown() {
  local package
  for package in "$@"; do [ -n "$(candidate "$package")" ] || return 0; done
  return 1
}

install_packages() {
  local package version usual=() newer=()
  : >"$LOG/apt.log"
  become_root
  if any_unknown "$@"; then
    progress "apt-get update"
    apt_get update || apt_failed update
  fi
  for package in "$@"; do
    version=$(candidate "$package")
    [ -n "$version" ] || fail "this machine's apt sources have no package '$package'; add Debian's or Ubuntu's own (main, universe)" 3
    if [ "$package" = catch2 ] && dpkg --compare-versions "$version" lt 3; then newer+=(catch2); else usual+=("$package"); fi
  done
  progress "apt-get install"
  if [ ${#usual[@]} -gt 0 ] && ! apt_get install --no-install-recommends "${usual[@]}"; then
    # Lists of last month name files that the mirror has no more.
    apt_get update && apt_get install --no-install-recommends "${usual[@]}" || apt_failed install
  fi
  [ ${#newer[@]} -eq 0 ] || install_from_backports "${newer[@]}"
  done_with "installed in $((SECONDS - step_start)) s"
}

# Debian's backports of this release, from the mirror that the machine already uses, through lists of our own.
install_from_backports() {
  local codename dir options status=0
  codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
  dir=$(mktemp -d)
  chmod 755 "$dir" # apt downloads as a user of its own
  mkdir -p "$dir/sources" "$dir/lists"
  backports_sources "$codename" "$dir/sources" ||
    fail "$* of version 3 or newer is needed, and the apt sources name no Debian mirror of '$codename' that could have its backports" 3
  options=(-o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$dir/sources" -o "Dir::State::Lists=$dir/lists"
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
  progress "apt-get install $* from $codename-backports"
  apt_get "${options[@]}" update && apt_get "${options[@]}" install --no-install-recommends -t "$codename-backports" "$@" || status=$?
  as_root rm -rf -- "$dir"
  [ "$status" = 0 ] || apt_failed "install from $codename-backports"
}

# backports_sources CODENAME FOLDER: writes there the machine's own entry for CODENAME main, options and keys included, once more
# with the suites CODENAME and CODENAME-backports. Entries with "debian" in their URI go before others.
backports_sources() {
  local list parts file
  eval "$(apt-config shell list Dir::Etc::SourceList/f parts Dir::Etc::SourceParts/d)"
  for file in "$list" "$parts"/*.list; do
    [ ! -f "$file" ] || awk -v codename="$1" '
      $1 == "deb" {
        i = 2
        if ($2 ~ /^\[/) while ($(i++) !~ /\]$/ && i <= NF);
        main = 0
        for (j = i + 2; j <= NF && $j !~ /^#/; ++j) main = main || $j == "main"
        if ($(i + 1) != codename || !main) next
        head = $1
        for (j = 2; j <= i; ++j) head = head " " $j
        print ($i ~ /debian/ ? 0 : 1), head, codename, "main\n" ($i ~ /debian/ ? 0 : 1), head, codename "-backports main"
      }' "$file"
  done | sort -s -k 1,1n | sed -n 1,2p | cut -d ' ' -f 2- >"$2/narrows.list"
  [ ! -s "$2/narrows.list" ] || return 0
  rm "$2/narrows.list"
  compgen -G "$parts/*.sources" >/dev/null || return 1
  awk -v codename="$1" -v RS= '
      # A stanza, a field and its continuation lines at a time; the words of a field as " a b ".
      function words(field,    i, inside, text) {
        for (i = 1; i <= n; ++i) {
          if (line[i] ~ /^#/) continue
          if (line[i] !~ /^[ \t]/) inside = tolower(line[i]) ~ "^" field ":"
          if (inside) text = text " " line[i]
        }
        sub(/^[^:]*:/, "", text)
        gsub(/[ \t]+/, " ", text)
        return text " "
      }
      {
        n = split($0, line, "\n")
        if (words("types") !~ / deb / || words("enabled") ~ / no / || words("components") !~ / main /) next
        if (index(words("suites"), " " codename " ") == 0 || (found != "" && words("uris") !~ /debian/)) next
        skip = 0; text = ""
        for (i = 1; i <= n; ++i) {
          if (line[i] ~ /^#/) continue
          if (line[i] !~ /^[ \t]/) skip = tolower(line[i]) ~ /^(types|suites|components):/
          if (!skip) text = text line[i] "\n"
        }
        found = text
        if (words("uris") ~ /debian/) exit
      }
      END { if (found != "") printf "Types: deb\nSuites: %s %s-backports\nComponents: main\n%s", codename, codename, found }
    ' "$parts"/*.sources >"$2/narrows.sources"
  [ -s "$2/narrows.sources" ]
}

# ---- dlpack.h ----

# Debian's package is 1.0 where it exists. The wheel holds 1.3 whatever platform it is for, so everyone takes the same file.
readonly DLPACK_WHEEL='apache-tvm-ffi==0.1.15.post2'
readonly DLPACK_WHEEL_SHA256=8ecebe749834f6ac0f2693d5964acf9ac75d0bc26e6ba64c46eb7ab00ea50fac

has_dlpack() {
  local prefix
  while read -r prefix; do ! dlpack_is_new "$prefix/include/dlpack/dlpack.h" || return 0; done < <(prefixes)
  return 1
}
dlpack_is_new() {
  [ -f "$1" ] && awk '$2 == "DLPACK_MAJOR_VERSION" && $1 == "#define" { major = $3 }
                      $2 == "DLPACK_MINOR_VERSION" && $1 == "#define" { minor = $3 }
                      END { exit !(major == 1 && minor >= 3) }' "$1"
}

# A virtual environment for what comes from PyPI; the user's own Python is left alone.
venv() {
  "$DEPS/venv/bin/python" -m pip --version >/dev/null 2>&1 || {
    rm -rf -- "$DEPS/venv"
    logged venv.log python3 -m venv "$DEPS/venv"
  }
}

fetch_dlpack() {
  step dlpack.h
  if has_dlpack; then
    done_with "1.3 or newer is there"
    return
  fi
  local folder=$DEPS/download
  venv
  rm -rf -- "$folder" && mkdir -p "$folder"
  printf '%s --hash=sha256:%s\n' "$DLPACK_WHEEL" "$DLPACK_WHEEL_SHA256" >"$folder/requirements.txt"
  logged dlpack.log "$DEPS/venv/bin/python" -m pip download --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
    --implementation cp --python-version 3.11 --abi cp311 --platform manylinux_2_28_x86_64 \
    --dest "$folder" --requirement "$folder/requirements.txt"
  logged dlpack.log python3 -c '
import sys, zipfile
print(zipfile.ZipFile(sys.argv[1]).read("tvm_ffi/include/dlpack/dlpack.h").decode(), file=open(sys.argv[2], "w"), end="")
' "$folder"/*.whl "$folder/dlpack.h"
  dlpack_is_new "$folder/dlpack.h" || fail "dlpack.h in $DLPACK_WHEEL is not 1.3 or newer" 3
  mkdir -p "$DEPS/include/dlpack" && mv -- "$folder/dlpack.h" "$DEPS/include/dlpack/dlpack.h"
  rm -rf -- "$folder"
  done_with "1.3, from the PyPI package $DLPACK_WHEEL, into .deps/include"
}
