// SPDX-License-Identifier: Apache-2.0
// elementwise_words.glsl -- elements in memory and in the words that carry them: a vector is up to 16 bytes of elements side by side
// in a uvec4, an element's bits are the low ones of a uint64_t. Sizes are specialization constants nearly everywhere, so that a
// driver keeps one way of each function. Included after common.glsl.
#extension GL_EXT_shader_8bit_storage : require
#extension GL_EXT_shader_16bit_storage : require

// ---- dtypes by number, as NW_DTYPE_* of abi/include/narrows/ops.h ----

const uint F32 = 1, F64 = 2, F16 = 3, BF16 = 4, I8 = 5, I16 = 6, I32 = 7, I64 = 8, U8 = 9, U16 = 10, U32 = 11, U64 = 12, BOOL = 13;

uint size_of_dtype(uint dtype) {
  switch (dtype) {
    case I8:
    case U8:
    case BOOL: return 1;
    case F16:
    case BF16:
    case I16:
    case U16: return 2;
    case F64:
    case I64:
    case U64: return 8;
    default: return 4;
  }
}

// ---- accesses: the alignment is a promise ----

layout(buffer_reference, std430, buffer_reference_align = 1) buffer Word8 { uint8_t word; };
layout(buffer_reference, std430, buffer_reference_align = 2) buffer Word16 { uint16_t word; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer Word32 { uint word; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Word64 { uvec2 words; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer Word128 { uvec4 words; };

uint64_t load_element(uint64_t at, uint size) {
  switch (size) {
    case 1: return uint64_t(uint(Word8(at).word));
    case 2: return uint64_t(uint(Word16(at).word));
    case 4: return uint64_t(Word32(at).word);
    default: return pack64(Word64(at).words);
  }
}
void store_element(uint64_t at, uint64_t bits, uint size) {
  switch (size) {
    case 1: Word8(at).word = uint8_t(uint(bits)); break;
    case 2: Word16(at).word = uint16_t(uint(bits)); break;
    case 4: Word32(at).word = uint(bits); break;
    default: Word64(at).words = unpack32(bits);
  }
}

// At any address.
uint64_t load_bytes(uint64_t at, uint size) {
  uint64_t bits = 0ul;
  [[dont_unroll]] for (uint i = 0; i < size; ++i) bits |= uint64_t(uint(Word8(at + i).word)) << (8 * i);
  return bits;
}
void store_bytes(uint64_t at, uint64_t bits, uint size) {
  [[dont_unroll]] for (uint i = 0; i < size; ++i) Word8(at + i).word = uint8_t(uint(bits >> (8 * i)) & 0xffu);
}

uvec4 load_vector(uint64_t at, uint bytes) {
  switch (bytes) {
    case 16: return Word128(at).words;
    case 8: return uvec4(Word64(at).words, 0, 0);
    case 4: return uvec4(Word32(at).word, 0, 0, 0);
    case 2: return uvec4(uint(Word16(at).word), 0, 0, 0);
    default: return uvec4(uint(Word8(at).word), 0, 0, 0);
  }
}
void store_vector(uint64_t at, uvec4 vector, uint bytes) {
  switch (bytes) {
    case 16: Word128(at).words = vector; break;
    case 8: Word64(at).words = vector.xy; break;
    case 4: Word32(at).word = vector.x; break;
    case 2: Word16(at).word = uint16_t(vector.x); break;
    default: Word8(at).word = uint8_t(vector.x);
  }
}

// ---- elements of a vector: by selection, since a register has no address ----

uint64_t element_of(uvec4 vector, uint i, uint size) {
  if (size == 8) return pack64(i == 0 ? vector.xy : vector.zw);
  const uint place = i * size, half_ = place >> 3;
  const uvec2 pair = half_ == 0 ? vector.xy : vector.zw;
  const uint word = (place & 4) == 0 ? pair.x : pair.y;
  return uint64_t(size == 4 ? word : bitfieldExtract(word, int(place & 3) * 8, int(size) * 8));
}
// `vector` with an element in a place that was 0.
uvec4 with_element(uvec4 vector, uint64_t bits, uint i, uint size) {
  if (size == 8) return vector | (i == 0 ? uvec4(unpack32(bits), 0, 0) : uvec4(0, 0, unpack32(bits)));
  const uint place = i * size;
  const uint word = (size == 4 ? uint(bits) : bitfieldExtract(uint(bits), 0, int(size) * 8)) << ((place & 3) * 8);
  const uvec2 pair = (place & 4) == 0 ? uvec2(word, 0) : uvec2(0, word);
  return vector | (place < 8 ? uvec4(pair, 0, 0) : uvec4(0, 0, pair));
}
// The same of words.
uint word_of(uvec4 vector, uint i) {
  const uvec2 pair = (i & 2) == 0 ? vector.xy : vector.zw;
  return (i & 1) == 0 ? pair.x : pair.y;
}
uvec4 with_word(uvec4 vector, uint word, uint i) {
  const uvec2 pair = (i & 1) == 0 ? uvec2(word, 0) : uvec2(0, word);
  return vector | ((i & 2) == 0 ? uvec4(pair, 0, 0) : uvec4(0, 0, pair));
}
// A vector of one element, over and over.
uvec4 repeated_element(uint64_t bits, uint size) {
  uvec2 pair = unpack32(bits);
  if (size == 1) pair.x *= 0x01010101u;
  if (size == 2) pair.x *= 0x00010001u;
  if (size != 8) pair.y = pair.x;
  return pair.xyxy;
}
