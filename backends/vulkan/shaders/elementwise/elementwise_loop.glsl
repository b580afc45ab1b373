// SPDX-License-Identifier: Apache-2.0
// elementwise_loop.glsl -- which elements a thread has, their loads, and their stores: one vector of VECTOR elements, or up to four
// elements of a rectangle. The includer has SLOTS operands and defines
//   uint dtype_of_slot(uint k)
//   uint64_t result(uint64_t elements[SLOTS])   the output's bits from those of the operands
//   uint pair_of_results(uint words[SLOTS])     with HAS_PAIRS: the same of two elements of f16 side by side
#extension GL_EXT_control_flow_attributes : require
#include "common.glsl"
#include "elementwise_words.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const int FUNCTION = 0;  // NW_EW_*
layout(constant_id = 2) const uint A = F32;      // dtype of the operand a
layout(constant_id = 3) const uint T = F32;      // that of the other ones
layout(constant_id = 4) const uint OUT = F32;
layout(constant_id = 5) const uint LOADED = 0;  // bit k: slot k is read from memory
layout(constant_id = 6) const uint VECTOR = 1;  // elements
layout(constant_id = 7) const uint ELEMENTS = 1;      // of a rectangle, to a thread: 1, 2 or 4
layout(constant_id = 8) const bool ANYWHERE = false;  // addresses may be no multiples of an element's size; VECTOR is 1
layout(constant_id = 9) const int OPERAND = 0;        // of a gradient
layout(constant_id = 10) const bool RUN = false;      // elements side by side from the first to the last, else a Layout
layout(constant_id = 11) const uint TOGETHER = 1;     // elements of a vector that are computed without a loop: VECTOR or 1
// Which loop: over any layout or run; the same where whole vectors of a run have code of their own; over rows of whole vectors; over
// rectangles of single elements.
const uint ANY_LAYOUT = 0, WHOLE_VECTORS = 1, ROWS = 2, RECTANGLES = 3;
layout(constant_id = 12) const uint LOOP = ANY_LAYOUT;
layout(constant_id = 13) const uint TURNED = 0;       // of a rectangle, bit k: slot k lies along the second dimension
layout(constant_id = 14) const uint TILE_WORDS = 1;   // of shared memory
layout(constant_id = 15) const uint NUMBERS = 0;      // bit k: slot k is a number, which is its operand
layout(constant_id = 16) const uint PAIRS = 0;        // 1: vectors of eight f16 are computed by pairs

// Where the operands lie that are no single run. Dimensions are counted in vectors along the first; a work group takes a rectangle
// of the first two, which is `block`.
struct Dimension {
  i64vec4 operands;  // bytes from one vector to the next
  int64_t of_out;    // likewise
  uint64_t blocks;   // rectangles
};
layout(buffer_reference, std430, buffer_reference_align = 32) readonly buffer Layout {
  uint block[2];
  uint apart[2];  // a thread's elements, in the two dimensions
  uint dims;
  Dimension dimension[16];
};
layout(push_constant) uniform Push {
  // What a run needs lies within 64 bytes, which come from the constant cache at once.
  uint64_t operand[4];  // addresses; of NUMBERS their bits
  uint64_t out_;
  uint64_t extent[2];  // RUN: elements, and those of the first vector that are not there. Else vectors along the first two dimensions
  uint traits;         // bit k: slot k's elements along the first dimension are all the same one; 16: is_misaligned(); 17: has_grid()
  uint width;          // threads along the first dimension, a power of two
  uint64_t alpha;      // of elu, in the type that is computed in
  uint64_t layout_;
  int64_t row_step[5];  // ROWS: bytes from one row to the next, of the slots and of the output
};

bool is_loaded(uint k) { return (LOADED >> k & 1) != 0; }
// Of a slot that is not read: its number, or 0 where it is not used.
uint64_t number_of(uint k) { return (NUMBERS >> k & 1) != 0 ? operand[k] : 0ul; }
bool is_repeated(uint k) { return (traits >> k & 1) != 0; }
// RUN: no access of more than one element; ANYWHERE: no access of more than a byte.
bool is_misaligned() { return (traits >> 16 & 1) != 0; }
// ROWS and layouts: work groups have the place that group_of_rows() finds in the grid.
bool has_grid() { return traits >> 17 != 0; }

uint dtype_of_slot(uint k);
uint64_t result(uint64_t elements[SLOTS]);

uint size_of_slot(uint k) { return size_of_dtype(dtype_of_slot(k)); }

// ---- places ----

// An array of two or four of them would have the type of one of Push's, with its layout, by a glslc of 2023; that is not valid SPIR-V.
const uint kMostPlaces = 5;
uint64_t place[kMostPlaces];  // of the vector, or of the rectangle's first element; the output's is number SLOTS
uint begin, end;              // the elements of the vector that there are

void locate_in_run() {
  const uint64_t first = uint64_t(flat_group()) * gl_WorkGroupSize.x;
  [[unroll]] for (uint k = 0; k <= SLOTS; ++k) {
    const bool is_out = k == SLOTS;
    if (!is_out && !is_loaded(k)) continue;
    const uint bytes = VECTOR * (is_out ? size_of_dtype(OUT) : size_of_slot(k));
    place[k] = is_out ? out_ : operand[k];
    if (is_out || !is_repeated(k)) place[k] += first * bytes + gl_LocalInvocationID.x * bytes;
  }
  // Within a group 32 bits count the elements.
  const int64_t before = int64_t(extent[1]) - int64_t(first * VECTOR), behind = before + int64_t(extent[0]);
  const int least = int(max(before, 0l)), most = int(clamp(behind, 0l, int64_t(gl_WorkGroupSize.x * VECTOR)));
  const int at = int(gl_LocalInvocationID.x * VECTOR);
  begin = uint(clamp(least - at, 0, int(VECTOR)));
  end = uint(clamp(most - at, 0, int(VECTOR)));
}

void move_along(Layout l, uint d, uint64_t position) {
  [[unroll]] for (uint k = 0; k < SLOTS; ++k)
    if (is_loaded(k)) place[k] += position * uint64_t(l.dimension[d].operands[k]);
  place[SLOTS] += position * uint64_t(l.dimension[d].of_out);
}

// The place of a group's rectangle, and what of it there is, at most `block`; false: there is no such group.
bool locate_rectangle(Layout l, out uvec2 there) {
  [[unroll]] for (uint k = 0; k < SLOTS; ++k) place[k] = operand[k];
  place[SLOTS] = out_;
  const uvec2 block = uvec2(l.block[0], l.block[1]);
  uvec2 group = group_of_rows(uint(l.dimension[0].blocks), has_grid());
  uint left = 0;
  if (l.dims > 2) {
    const uint rows = uint(l.dimension[1].blocks);
    left = group.y / rows;
    group.y -= left * rows;
    [[dont_unroll]] for (uint d = 2; d < l.dims; ++d) {
      const uint blocks = uint(l.dimension[d].blocks), next = left / blocks;
      move_along(l, d, left - next * blocks);
      left = next;
    }
  }
  const uint64_t x = uint64_t(group.x) * block.x, y = uint64_t(group.y) * block.y;
  if (left != 0 || y >= extent[1]) return false;
  move_along(l, 0, x);
  move_along(l, 1, y);
  there = uvec2(min(extent[0] - x, uint64_t(block.x)), min(extent[1] - y, uint64_t(block.y)));
  return true;
}

uvec2 own_place() { return uvec2(gl_LocalInvocationID.x & (width - 1), gl_LocalInvocationID.x >> findLSB(width)); }
// How far an element of the rectangle is from its first one.
uint64_t way(Layout l, uint k, uvec2 at) {
  const i64vec2 stride = k == SLOTS ? i64vec2(l.dimension[0].of_out, l.dimension[1].of_out)
                                    : i64vec2(l.dimension[0].operands[k], l.dimension[1].operands[k]);
  return at.x * uint64_t(stride.x) + at.y * uint64_t(stride.y);
}

void locate_in_layout() {
  Layout l = Layout(layout_);
  uvec2 there;
  const bool is_there = locate_rectangle(l, there);
  const uvec2 own = own_place();
  [[unroll]] for (uint k = 0; k <= SLOTS; ++k)
    if (k == SLOTS || is_loaded(k)) place[k] += way(l, k, own);
  begin = 0;
  end = is_there && all(lessThan(own, there)) ? VECTOR : 0;
}

// ---- elements ----

uvec4 load_slot(uint k) {
  const uint size = size_of_slot(k);
  const uint64_t at = place[k];
  if (ANYWHERE) return uvec4(unpack32(is_misaligned() ? load_bytes(at, size) : load_element(at, size)), 0, 0);
  if (VECTOR == 1) return load_vector(at, size);
  const bool is_same = is_repeated(k);
  if (!is_same && (!RUN || (end - begin == VECTOR && !is_misaligned()))) return load_vector(at, VECTOR * size);
  uvec4 vector = uvec4(0);
  const uint first = is_same ? 0 : begin, last = is_same ? 1 : end;
  [[dont_unroll]] for (uint i = first; i < last; ++i) vector = with_element(vector, load_element(at + i * size, size), i, size);
  return is_same ? repeated_element(element_of(vector, 0, size), size) : vector;
}

void store_out(uvec4 vector) {
  const uint size = size_of_dtype(OUT);
  const uint64_t at = place[SLOTS];
  if (ANYWHERE) {
    if (is_misaligned())
      store_bytes(at, pack64(vector.xy), size);
    else
      store_element(at, pack64(vector.xy), size);
  } else if (!RUN || (end - begin == VECTOR && !is_misaligned())) {
    store_vector(at, vector, VECTOR * size);
  } else {
    [[dont_unroll]] for (uint i = begin; i < end; ++i) store_element(at + i * size, element_of(vector, i, size), size);
  }
}

#ifdef HAS_PAIRS
uint pair_of_results(uint words[SLOTS]);
uvec4 results_of_pairs(uvec4 vectors[SLOTS]) {
  uvec4 vector = uvec4(0);
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    uint words[SLOTS];
    [[unroll]] for (uint k = 0; k < SLOTS; ++k) words[k] = is_loaded(k) ? word_of(vectors[k], i) : uint(number_of(k)) * 0x10001u;
    vector = with_word(vector, pair_of_results(words), i);
  }
  return vector;
}
#endif

uvec4 results(uvec4 vectors[SLOTS]) {
#ifdef HAS_PAIRS
  switch (PAIRS) {
    case 0: break;
    default: return results_of_pairs(vectors);
  }
#endif
  uvec4 vector = uvec4(0);
  for (uint first = 0; first < VECTOR; first += TOGETHER)
    [[unroll]] for (uint j = 0; j < TOGETHER; ++j) {
      uint64_t elements[SLOTS];
      [[unroll]] for (uint k = 0; k < SLOTS; ++k)
        elements[k] = is_loaded(k) ? element_of(vectors[k], first + j, size_of_slot(k)) : number_of(k);
      vector = with_element(vector, result(elements), first + j, size_of_dtype(OUT));
    }
  return vector;
}

// Of a run: the thread's vector; whether it is whole, and loaded and stored at once; whether there is none of it.
uint64_t vector_of_run() { return uint64_t(flat_group()) * gl_WorkGroupSize.x + gl_LocalInvocationID.x; }
bool has_whole_vector() {
  const uint64_t first = vector_of_run() * VECTOR;
  return traits == 0 && first >= extent[1] && first + VECTOR <= extent[0] + extent[1];
}
bool is_past_the_end() { return vector_of_run() * VECTOR >= extent[0] + extent[1]; }

// One vector a thread, and nothing else: what most of a run is made of.
void compute_whole_vector() {
  const uint64_t i = vector_of_run();
  uvec4 vectors[SLOTS];
  [[unroll]] for (uint k = 0; k < SLOTS; ++k)
    if (is_loaded(k)) vectors[k] = load_vector(operand[k] + i * (VECTOR * size_of_slot(k)), VECTOR * size_of_slot(k));
  store_vector(out_ + i * (VECTOR * size_of_dtype(OUT)), results(vectors), VECTOR * size_of_dtype(OUT));
}

// Rows of whole vectors, of which a thread has one: nothing is read but the operands.
void compute_vector_of_rows() {
  const uint along = findLSB(width);
  const uvec2 group = group_of_rows(uint((extent[0] + width - 1) >> along), has_grid());
  const uint64_t column = uint64_t(group.x) * width + (gl_LocalInvocationID.x & (width - 1));
  const uint64_t row = uint64_t(group.y) * (gl_WorkGroupSize.x >> along) + (gl_LocalInvocationID.x >> along);
  if (column >= extent[0] || row >= extent[1]) return;
  uvec4 vectors[SLOTS];
  [[unroll]] for (uint k = 0; k < SLOTS; ++k) {
    if (!is_loaded(k)) continue;
    const uint size = size_of_slot(k);
    const uint64_t at = operand[k] + row * uint64_t(row_step[k]);
    if (is_repeated(k))
      vectors[k] = repeated_element(load_element(at, size), size);
    else
      vectors[k] = load_vector(at + column * (VECTOR * size), VECTOR * size);
  }
  const uint bytes = VECTOR * size_of_dtype(OUT);
  store_vector(out_ + row * uint64_t(row_step[4]) + column * bytes, results(vectors), bytes);
}

// ---- rectangles: a thread's elements are in registers, and chosen by selection, since these have no address ----

uint64_t chosen(u64vec4 v, uint e) { return e == 0 ? v.x : e == 1 ? v.y : e == 2 ? v.z : v.w; }
u64vec4 with_chosen(u64vec4 v, uint e, uint64_t x) {
  return u64vec4(e == 0 ? x : v.x, e == 1 ? x : v.y, e == 2 ? x : v.z, e == 3 ? x : v.w);
}

// A thread's elements in the rectangle: the first one, how far they are apart, and how many there are. One of the two distances is 0,
// the other one a power of two.
struct Elements {
  uvec2 first, apart;
  uint count;
};
Elements elements_at(uvec2 first, uvec2 apart, uvec2 there) {
  const uvec2 left = there - min(first, there);
  const uint step = apart.x + apart.y, behind = apart.x != 0 ? left.x : left.y;
  return Elements(first, apart, left.x == 0 || left.y == 0 ? 0 : (behind + step - 1) >> findLSB(step));
}

// Past the last one it is the last one again, or the rectangle's first: there is no branch between the loads.
u64vec4 load_elements(Layout l, uint k, Elements at) {
  const uint size = size_of_slot(k);
  const uint64_t step = way(l, k, at.apart);
  uint64_t from = place[k] + (at.count == 0 ? 0ul : way(l, k, at.first));
  u64vec4 v = u64vec4(load_element(from, size));
  [[unroll]] for (uint e = 1; e < ELEMENTS; ++e) {
    if (e < at.count) from += step;
    v = with_chosen(v, e, load_element(from, size));
  }
  return v;
}

// What lies along the second dimension is loaded along it, by threads that follow it, and turned in shared memory. A column is an
// odd number of words there; the high words of 8 bytes come behind all low ones.
shared uint tile[TILE_WORDS];

bool is_turned(uint k) { return (TURNED >> k & 1) != 0; }

u64vec4 turned(u64vec4 v, uint size, uint height, Elements along, Elements own) {
  const uint pitch = height + 1, high = pitch * width;
  barrier();  // the slot before has been read
  [[unroll]] for (uint e = 0; e < ELEMENTS; ++e) {
    const uint to = (along.first.x + e * along.apart.x) * pitch + along.first.y;
    const uvec2 words = unpack32(chosen(v, e));
    tile[to] = words.x;
    if (size == 8) tile[to + high] = words.y;
  }
  barrier();
  [[unroll]] for (uint e = 0; e < ELEMENTS; ++e) {
    const uint from = own.first.x * pitch + own.first.y + e * own.apart.y;
    v = with_chosen(v, e, pack64(uvec2(tile[from], size == 8 ? tile[from + high] : 0)));
  }
  return v;
}

u64vec4 elements_of_slot(Layout l, uint k, Elements own, Elements along) {
  u64vec4 v = u64vec4(number_of(k));
  if (is_loaded(k)) {
    Elements at = own;
    if (is_turned(k)) at = along;
    v = load_elements(l, k, at);
  }
  return v;
}

void compute_rectangle() {
  Layout l = Layout(layout_);
  uvec2 there;
  if (!locate_rectangle(l, there)) return;
  const uint height = l.block[1], shift = findLSB(height), self = gl_LocalInvocationID.x;
  const Elements own = elements_at(own_place(), uvec2(l.apart[0], l.apart[1]), there);
  Elements along = own;
  if (TURNED != 0) along = elements_at(uvec2(self >> shift, self & (height - 1)), uvec2(gl_WorkGroupSize.x >> shift, 0), there);
  // Slot by slot: NVIDIA's compiler does not unroll loops of so much, or with barriers in them, and puts what they index into memory.
  u64vec4 elements[SLOTS];
  elements[0] = elements_of_slot(l, 0, own, along);
#if SLOTS > 1
  elements[1] = elements_of_slot(l, 1, own, along);
  elements[2] = elements_of_slot(l, 2, own, along);
#endif
#if SLOTS > 3
  elements[3] = elements_of_slot(l, 3, own, along);
#endif
  if (is_turned(0)) elements[0] = turned(elements[0], size_of_slot(0), height, along, own);
#if SLOTS > 1
  if (is_turned(1)) elements[1] = turned(elements[1], size_of_slot(1), height, along, own);
  if (is_turned(2)) elements[2] = turned(elements[2], size_of_slot(2), height, along, own);
#endif
#if SLOTS > 3
  if (is_turned(3)) elements[3] = turned(elements[3], size_of_slot(3), height, along, own);
#endif
  const uint64_t step = way(l, SLOTS, own.apart);
  uint64_t to = place[SLOTS] + way(l, SLOTS, own.first);
  [[unroll]] for (uint e = 0; e < ELEMENTS; ++e) {
    uint64_t operands[SLOTS];
    [[unroll]] for (uint k = 0; k < SLOTS; ++k) operands[k] = chosen(elements[k], e);
    if (e < own.count) store_element(to, result(operands), size_of_dtype(OUT));
    to += step;
  }
}

void main() {
  switch (LOOP) {  // and no `if`: of a switch one case is compiled
    case ANY_LAYOUT: break;
    case ROWS: compute_vector_of_rows(); return;
    case RECTANGLES: compute_rectangle(); return;
    default:
      if (has_whole_vector()) {
        compute_whole_vector();
        return;
      }
      if (is_past_the_end()) return;
  }
  if (RUN)
    locate_in_run();
  else
    locate_in_layout();
  if (begin >= end) return;
  uvec4 vectors[SLOTS];
  [[unroll]] for (uint k = 0; k < SLOTS; ++k)
    if (is_loaded(k)) vectors[k] = load_slot(k);
  store_out(results(vectors));
}
