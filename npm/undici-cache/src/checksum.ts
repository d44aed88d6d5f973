// XXH3 with 64 bits: the checksum of records and of the purge log. Short input uses BigInt arithmetic; long input uses 32-bit halves, which is many times as
// fast.

const SECRET = Buffer.from(
  'b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c' +
    '3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364' +
    'eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e',
  'hex',
)

const MASK = 0xffff_ffff_ffff_ffffn
const PRIME32 = [0x9e3779b1n, 0x85ebca77n, 0xc2b2ae3dn] as const
const PRIME64 = [
  0x9e3779b185ebca87n, 0xc2b2ae3d27d4eb4fn, 0x165667b19e3779f9n, 0x85ebca77c2b2ae63n, 0x27d4eb2f165667c5n,
] as const
const STRIPE_BYTES = 64
const STRIPES_IN_BLOCK = 16
const BLOCK_BYTES = STRIPE_BYTES * STRIPES_IN_BLOCK
const LANES = 8

/** The 64-bit XXH3 hash of `bytes`. */
export function xxh3(bytes: Buffer, seed = 0n): bigint {
  if (bytes.length <= 16) return hashTiny(bytes, seed)
  if (bytes.length <= 128) return hashShort(bytes, seed)
  if (bytes.length <= 240) return hashMiddle(bytes, seed)
  return hashLong(bytes, seed)
}

function wrap(value: bigint): bigint {
  return value & MASK
}

function secret64(at: number): bigint {
  return SECRET.readBigUInt64LE(at)
}

function foldProduct(a: bigint, b: bigint): bigint {
  const product = a * b
  return (product & MASK) ^ (product >> 64n)
}

function avalanche(value: bigint): bigint {
  const mixed = wrap((value ^ (value >> 37n)) * 0x165667919e3779f9n)
  return mixed ^ (mixed >> 32n)
}

function avalancheXxh64(value: bigint): bigint {
  const first = wrap((value ^ (value >> 33n)) * PRIME64[1])
  const second = wrap((first ^ (first >> 29n)) * PRIME64[2])
  return second ^ (second >> 32n)
}

function rotateLeft(value: bigint, bits: bigint): bigint {
  return wrap(value << bits) | (value >> (64n - bits))
}

function swapBytes(value: bigint): bigint {
  const bytes = Buffer.alloc(8)
  bytes.writeBigUInt64LE(value)
  return bytes.readBigUInt64BE()
}

function hashTiny(bytes: Buffer, seed: bigint): bigint {
  const length = bytes.length
  if (length > 8) return hash9To16(bytes, seed)
  if (length >= 4) return hash4To8(bytes, seed)
  if (length > 0) return hash1To3(bytes, seed)
  return avalancheXxh64(wrap(seed) ^ secret64(56) ^ secret64(64))
}

function hash1To3(bytes: Buffer, seed: bigint): bigint {
  const length = bytes.length
  const [first, middle, last] = [bytes.readUInt8(0), bytes.readUInt8(length >> 1), bytes.readUInt8(length - 1)]
  const combined = BigInt(((first << 16) | (middle << 24) | last | (length << 8)) >>> 0)
  const flip = wrap(BigInt((SECRET.readUInt32LE(0) ^ SECRET.readUInt32LE(4)) >>> 0) + seed)
  return avalancheXxh64(combined ^ flip)
}

function hash4To8(bytes: Buffer, seed: bigint): bigint {
  const length = BigInt(bytes.length)
  const low = Buffer.alloc(4)
  low.writeUInt32LE(Number(seed & 0xffff_ffffn))
  const mixedSeed = seed ^ (BigInt(low.readUInt32BE()) << 32n)
  const first = BigInt(bytes.readUInt32LE(0))
  const last = BigInt(bytes.readUInt32LE(bytes.length - 4))
  let hash = wrap(last + (first << 32n)) ^ wrap((secret64(8) ^ secret64(16)) - mixedSeed)
  hash ^= rotateLeft(hash, 49n) ^ rotateLeft(hash, 24n)
  hash = wrap(hash * 0x9fb21c651e98df25n)
  hash = wrap((hash ^ ((hash >> 35n) + length)) * 0x9fb21c651e98df25n)
  return hash ^ (hash >> 28n)
}

function hash9To16(bytes: Buffer, seed: bigint): bigint {
  const low = bytes.readBigUInt64LE(0) ^ wrap((secret64(24) ^ secret64(32)) + seed)
  const high = bytes.readBigUInt64LE(bytes.length - 8) ^ wrap((secret64(40) ^ secret64(48)) - seed)
  return avalanche(wrap(BigInt(bytes.length) + swapBytes(low) + high + foldProduct(low, high)))
}

function mix16(bytes: Buffer, at: number, secretAt: number, seed: bigint): bigint {
  const low = bytes.readBigUInt64LE(at) ^ wrap(secret64(secretAt) + seed)
  const high = bytes.readBigUInt64LE(at + 8) ^ wrap(secret64(secretAt + 8) - seed)
  return foldProduct(low, high)
}

function hashShort(bytes: Buffer, seed: bigint): bigint {
  const length = bytes.length
  let sum = BigInt(length) * PRIME64[0]
  for (let pair = (length - 1) >> 5; pair >= 0; pair--) {
    sum += mix16(bytes, 16 * pair, 32 * pair, seed)
    sum += mix16(bytes, length - 16 * (pair + 1), 32 * pair + 16, seed)
  }
  return avalanche(wrap(sum))
}

function hashMiddle(bytes: Buffer, seed: bigint): bigint {
  let sum = BigInt(bytes.length) * PRIME64[0]
  for (let round = 0; round < 8; round++) sum += mix16(bytes, 16 * round, 16 * round, seed)
  let end = avalanche(wrap(sum)) + mix16(bytes, bytes.length - 16, 136 - 17, seed)
  for (let round = 8; round < bytes.length >> 4; round++) end += mix16(bytes, 16 * round, 16 * (round - 8) + 3, seed)
  return avalanche(wrap(end))
}

function secretOf(seed: bigint): Buffer {
  if (seed === 0n) return SECRET
  const derived = Buffer.alloc(SECRET.length)
  for (let at = 0; at < SECRET.length; at += 16) {
    derived.writeBigUInt64LE(wrap(secret64(at) + seed), at)
    derived.writeBigUInt64LE(wrap(secret64(at + 8) - seed), at + 8)
  }
  return derived
}

/** Eight 64-bit accumulators in 32-bit halves, the low halves first. */
function startingSums(): Uint32Array {
  const lanes = [
    PRIME32[2], PRIME64[0], PRIME64[1], PRIME64[2], PRIME64[3], PRIME32[1], PRIME64[4], PRIME32[0],
  ]
  const sums = new Uint32Array(2 * LANES)
  lanes.forEach((lane, index) => {
    sums[index] = Number(lane & 0xffff_ffffn)
    sums[LANES + index] = Number(lane >> 32n)
  })
  return sums
}

function accumulate(sums: Uint32Array, bytes: DataView, at: number, secret: DataView, secretAt: number): void {
  for (let lane = 0; lane < LANES; lane++) {
    const low = bytes.getUint32(at + 8 * lane, true)
    const high = bytes.getUint32(at + 8 * lane + 4, true)
    addTo(sums, lane ^ 1, low, high)
    const keyLow = low ^ secret.getUint32(secretAt + 8 * lane, true)
    const keyHigh = high ^ secret.getUint32(secretAt + 8 * lane + 4, true)
    addProduct(sums, lane, keyLow, keyHigh)
  }
}

function addTo(sums: Uint32Array, lane: number, low: number, high: number): void {
  const sum = sums[lane]! + low
  sums[lane] = sum
  sums[LANES + lane] = sums[LANES + lane]! + high + (sum > 0xffff_ffff ? 1 : 0)
}

function addProduct(sums: Uint32Array, lane: number, a: number, b: number): void {
  const aLow = a & 0xffff
  const aHigh = a >>> 16
  const bLow = b & 0xffff
  const bHigh = b >>> 16
  const lowest = aLow * bLow
  const one = aLow * bHigh
  const other = aHigh * bLow
  const middle = (lowest >>> 16) + (one & 0xffff) + (other & 0xffff)
  const low = ((middle << 16) | (lowest & 0xffff)) >>> 0
  addTo(sums, lane, low, aHigh * bHigh + (one >>> 16) + (other >>> 16) + (middle >>> 16))
}

function scramble(sums: Uint32Array, secret: DataView): void {
  const secretAt = SECRET.length - STRIPE_BYTES
  const prime = Number(PRIME32[0])
  for (let lane = 0; lane < LANES; lane++) {
    const high = sums[LANES + lane]!
    const low = sums[lane]! ^ (high >>> 15) ^ secret.getUint32(secretAt + 8 * lane, true)
    const mixed = high ^ secret.getUint32(secretAt + 8 * lane + 4, true)
    sums[lane] = 0
    sums[LANES + lane] = Math.imul(mixed, prime)
    addProduct(sums, lane, low, prime)
  }
}

function mergeSums(sums: Uint32Array, secret: Buffer, start: bigint): bigint {
  const sum = (lane: number): bigint => (BigInt(sums[LANES + lane]!) << 32n) | BigInt(sums[lane]!)
  let merged = start
  for (let lane = 0; lane < LANES; lane += 2) {
    const at = 11 + 8 * lane
    merged += foldProduct(sum(lane) ^ secret.readBigUInt64LE(at), sum(lane + 1) ^ secret.readBigUInt64LE(at + 8))
  }
  return avalanche(wrap(merged))
}

function viewOf(bytes: Buffer): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
}

function hashLong(bytes: Buffer, seed: bigint): bigint {
  const length = bytes.length
  const secret = secretOf(seed)
  const [view, secretView, sums] = [viewOf(bytes), viewOf(secret), startingSums()]
  const lastStripe = Math.floor((length - 1) / STRIPE_BYTES)
  for (let stripe = 0; stripe < lastStripe; stripe++) {
    const inBlock = stripe % STRIPES_IN_BLOCK
    accumulate(sums, view, stripe * STRIPE_BYTES, secretView, 8 * inBlock)
    if (inBlock === STRIPES_IN_BLOCK - 1 && (stripe + 1) * STRIPE_BYTES <= BLOCK_BYTES * Math.floor((length - 1) / BLOCK_BYTES)) {
      scramble(sums, secretView)
    }
  }
  accumulate(sums, view, length - STRIPE_BYTES, secretView, SECRET.length - STRIPE_BYTES - 7)
  return mergeSums(sums, secret, wrap(BigInt(length) * PRIME64[0]))
}
