// The bytes of the purge log as it lies on the server: docs/internals/remote-tier.md, "The log".

import { randomBytes } from 'node:crypto'
import { FormatError } from './bytes.js'
import { xxh3 } from './checksum.js'

export const LOG_HEADER_BYTES = 32
const RECORD_HEADER_BYTES = 8
const RECORD_BYTES_MAX = 65_536
/** What is read at a time: the longest record as a whole. */
export const LOG_READ_BYTES = RECORD_BYTES_MAX + RECORD_HEADER_BYTES
export const RECORD_MARK_BYTES = RECORD_HEADER_BYTES + 28
const MARK = Buffer.from([0x4c, 0x41, 0x52, 1, 0x4c, 0, 0, 0])

export interface LogHeader {
  readonly id: string
  /** The offset of the first byte behind the header. */
  readonly floor: number
}

export interface LogRecord {
  readonly bytes: Buffer
  readonly end: number
  /** Its first bytes as they lie there, which tell it apart: length and checksum, and of a purge its time and its id. */
  readonly mark: Buffer
}

/** A log as it lies there. */
export interface LogState extends LogHeader {
  readonly end: number
  /** As many bytes as `Read` has of a record, at its place; `undefined`: that is not known. */
  readonly there: Buffer | undefined
}

/** What was read of a log. */
export interface Read {
  readonly id: string
  readonly offset: number
  /** The mark of the record before that; `undefined`: there is none. */
  readonly last: Buffer | undefined
}

/** How a log relates to what was read of it: all that came since can be read; some of it is gone; nobody knows what came. */
export type Continuity = 'whole' | 'trimmed' | 'lost'

export function newLogHeader(): LogHeader {
  return { id: randomBytes(16).toString('hex'), floor: 0 }
}

export function encodeLogHeader({ id, floor }: LogHeader): Buffer {
  const bytes = Buffer.alloc(LOG_HEADER_BYTES)
  MARK.copy(bytes)
  Buffer.from(id, 'hex').copy(bytes, 8)
  bytes.writeBigUInt64LE(BigInt(floor), 24)
  return bytes
}

/** `undefined` for what is no log of this version. */
export function decodeLogHeader(bytes: Buffer): LogHeader | undefined {
  if (bytes.length < LOG_HEADER_BYTES || !bytes.subarray(0, 8).equals(MARK)) return undefined
  const floor = bytes.readBigUInt64LE(24)
  if (floor > BigInt(Number.MAX_SAFE_INTEGER)) return undefined
  return { id: bytes.subarray(8, 24).toString('hex'), floor: Number(floor) }
}

/** A log that was set back, and has grown again to where it was, has another record in the place of the one that was read last. */
export function continuityOf(state: LogState, read: Read): Continuity {
  if (state.id !== read.id || state.end < read.offset) return 'lost'
  if (state.floor > read.offset) return 'trimmed'
  return state.there === undefined || read.last?.equals(state.there) ? 'whole' : 'lost'
}

export function encodeLogRecord(record: Buffer): Buffer {
  if (record.length > RECORD_BYTES_MAX) throw new FormatError('length', 'a record of the log is too long')
  const header = Buffer.alloc(RECORD_HEADER_BYTES)
  header.writeUInt32LE(record.length)
  header.writeUInt32LE(checksumOf(record), 4)
  return Buffer.concat([header, record])
}

/** The records that begin at `start`, as far as they were read as a whole. */
export function decodeLogRecords(read: Buffer, start: number): LogRecord[] {
  const records: LogRecord[] = []
  let at = 0
  while (at + RECORD_HEADER_BYTES <= read.length) {
    const length = read.readUInt32LE(at)
    if (length > RECORD_BYTES_MAX) throw new FormatError('length', 'a record of the log is longer than one can be')
    const end = at + RECORD_HEADER_BYTES + length
    if (end > read.length) break
    const bytes = read.subarray(at + RECORD_HEADER_BYTES, end)
    if (checksumOf(bytes) !== read.readUInt32LE(at + 4)) throw new FormatError('checksum', 'a record of the log has a wrong checksum')
    records.push({ bytes, end: start + end, mark: read.subarray(at, Math.min(end, at + RECORD_MARK_BYTES)) })
    at = end
  }
  // As much was read as the longest record has, so the log ends in the middle of this one.
  if (at < read.length && read.length - at < LOG_READ_BYTES && read.length < LOG_READ_BYTES) {
    throw new FormatError('length', 'the log ends in the middle of a record')
  }
  return records
}

/** The length is under it: zeros are no records. */
function checksumOf(bytes: Buffer): number {
  return Number(xxh3(bytes, BigInt(bytes.length)) & 0xffff_ffffn)
}
