// Little-endian reader and writer for the bytes of records: docs/internals/record-format.md.

const NULL_TEXT = 0xffff
const NO_NUMBER = 0xffff_ffff_ffff_ffffn

/** The reason for refusing bytes, which determines how they are handled. */
export type FormatProblem = 'length' | 'checksum' | 'version' | 'not-ours' | 'unauthenticated' | 'other' | 'invalid'

/** Malformed or unexpected bytes: always a miss. */
export class FormatError extends Error {
  override readonly name = 'FormatError'

  constructor(readonly problem: FormatProblem, message: string) {
    super(message)
  }
}

export function invalid(message: string): FormatError {
  return new FormatError('invalid', message)
}

/** Reads values from the front of untrusted bytes. */
export class ByteReader {
  #at = 0

  constructor(readonly bytes: Buffer) {}

  get left(): number {
    return this.bytes.length - this.#at
  }

  take(count: number): Buffer {
    if (count > this.left) throw new FormatError('length', 'the record ends too early')
    const taken = this.bytes.subarray(this.#at, this.#at + count)
    this.#at += count
    return taken
  }

  u8(): number {
    return this.take(1).readUInt8()
  }

  u16(): number {
    return this.take(2).readUInt16LE()
  }

  u32(): number {
    return this.take(4).readUInt32LE()
  }

  u64(): bigint {
    return this.take(8).readBigUInt64LE()
  }

  /** An unsigned 64-bit number, which must be below 2^53. */
  size(): number {
    return sizeOf(this.u64())
  }

  sizeIfAny(): number | undefined {
    const value = this.u64()
    return value === NO_NUMBER ? undefined : sizeOf(value)
  }

  raw(): Buffer {
    return this.rawOfLength(this.u16())
  }

  text(): string {
    return this.raw().toString('utf8')
  }

  textOrNull(): string | null {
    const length = this.u16()
    return length === NULL_TEXT ? null : this.take(length).toString('utf8')
  }

  /** Two numbers as one flat string. A concatenated string would keep both parts in memory, and many are kept. */
  fill(): string {
    const bytes = Buffer.from(this.take(16))
    bytes.subarray(0, 8).reverse()
    bytes.subarray(8).reverse()
    return bytes.toString('hex')
  }

  list<T>(count: number, read: () => T): T[] {
    return Array.from({ length: count }, read)
  }

  end(): void {
    if (this.left > 0) throw new FormatError('length', 'the record has bytes after its end')
  }

  private rawOfLength(length: number): Buffer {
    if (length === NULL_TEXT) throw invalid('expected text, found null')
    return this.take(length)
  }
}

function sizeOf(value: bigint): number {
  if (value > BigInt(Number.MAX_SAFE_INTEGER)) throw invalid('a number is too large')
  return Number(value)
}

export function hex16(value: bigint): string {
  return value.toString(16).padStart(16, '0')
}

/** Writes values to bytes. */
export class ByteWriter {
  readonly #pieces: Buffer[] = []

  bytes(piece: Buffer): void {
    this.#pieces.push(piece)
  }

  u8(value: number): void {
    this.#pieces.push(Buffer.of(value))
  }

  u16(value: number): void {
    const piece = Buffer.allocUnsafe(2)
    piece.writeUInt16LE(value)
    this.#pieces.push(piece)
  }

  u32(value: number): void {
    const piece = Buffer.allocUnsafe(4)
    piece.writeUInt32LE(value)
    this.#pieces.push(piece)
  }

  u64(value: bigint): void {
    const piece = Buffer.allocUnsafe(8)
    piece.writeBigUInt64LE(value)
    this.#pieces.push(piece)
  }

  size(value: number): void {
    this.u64(BigInt(Math.max(0, Math.trunc(value))))
  }

  sizeIfAny(value: number | undefined): void {
    if (value === undefined) this.u64(NO_NUMBER)
    else this.size(value)
  }

  text(value: string | Buffer): void {
    const bytes = typeof value === 'string' ? Buffer.from(value, 'utf8') : value
    if (bytes.length >= NULL_TEXT) throw invalid('a text is too long')
    this.u16(bytes.length)
    this.#pieces.push(bytes)
  }

  textOrNull(value: string | null): void {
    if (value === null) this.u16(NULL_TEXT)
    else this.text(value)
  }

  fill(value: string): void {
    this.u64(BigInt(`0x${value.slice(0, 16)}`))
    this.u64(BigInt(`0x${value.slice(16)}`))
  }

  finish(): Buffer {
    return Buffer.concat(this.#pieces)
  }
}
