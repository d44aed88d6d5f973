// The byte format of the purge log on the server: docs/internals/remote-tier.md, "The log".

import { randomBytes } from 'node:crypto'
import { FormatError } from './bytes.js'
import { xxh3 } from './checksum.js'

export const LOG_HEADER_BYTES = 32
const RECORD_HEADER_BYTES = 8
const RECORD_BYTES_MAX = 65_536
/** Bytes per read, enough for the longest record. */
export const LOG_READ_BYTES = RECORD_BYTES_MAX + RECORD_HEADER_BYTES
export const RECORD_MARK_BYTES = RECORD_HEADER_BYTES + 28
const MARK = Buffer.from([0x4c, 0x41, 0x52, 1, 0x4c, 0, 0, 0])

export interface LogHeader {
  readonly id: string
  /** The offset of the first byte after the header. */
  readonly floor: number
}

export interface LogRecord {
  readonly bytes: Buffer
  readonly end: number
  /** The first bytes of the record, which identify it: length, checksum, and the beginning, such as the time and id of a purge. */
  readonly mark: Buffer
}

/** The state of a log on the server. */
export interface LogState extends LogHeader {
  readonly end: number
  /** The current bytes at the place of the mark in `Read`; `undefined` if unknown. */
  readonly there: Buffer | undefined
}

/** How far a log was read. */
export interface Read {
  readonly id: string
  readonly offset: number
  /** The mark of the last record that was read; `undefined` if there is none. */
  readonly last: Buffer | undefined
}

/** How a log relates to the part read of it: all later records are readable, some were trimmed, or they are unknown. */
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

/** Decodes a log header; `undefined` if the bytes aren't a log of this version. */
export function decodeLogHeader(bytes: Buffer): LogHeader | undefined {
  if (bytes.length < LOG_HEADER_BYTES || !bytes.subarray(0, 8).equals(MARK)) return undefined
  const floor = bytes.readBigUInt64LE(24)
  if (floor > BigInt(Number.MAX_SAFE_INTEGER)) return undefined
  return { id: bytes.subarray(8, 24).toString('hex'), floor: Number(floor) }
}

/** Compares a log with the part read of it. If a log was set back and has grown again, a different record is in the place of the last one read. */
export function continuityOf(state: LogState, read: Read): Continuity {
  if (state.id !== read.id || state.end < read.offset) return 'lost'
  if (state.floor > read.offset) return 'trimmed'
  return state.there === undefined || read.last?.equals(state.there) ? 'whole' : 'lost'
}

export function encodeLogRecord(record: Buffer): Buffer {
  if (record.length > RECORD_BYTES_MAX) throw new FormatError('length', 'the log record is too long')
  const header = Buffer.alloc(RECORD_HEADER_BYTES)
  header.writeUInt32LE(record.length)
  header.writeUInt32LE(checksumOf(record), 4)
  return Buffer.concat([header, record])
}

/** The complete records from `start` on. */
export function decodeLogRecords(read: Buffer, start: number): LogRecord[] {
  const records: LogRecord[] = []
  let at = 0
  while (at + RECORD_HEADER_BYTES <= read.length) {
    const length = read.readUInt32LE(at)
    if (length > RECORD_BYTES_MAX) throw new FormatError('length', 'the length of a log record is out of range')
    const end = at + RECORD_HEADER_BYTES + length
    if (end > read.length) break
    const bytes = read.subarray(at + RECORD_HEADER_BYTES, end)
    if (checksumOf(bytes) !== read.readUInt32LE(at + 4)) throw new FormatError('checksum', 'a record of the log has a wrong checksum')
    records.push({ bytes, end: start + end, mark: read.subarray(at, Math.min(end, at + RECORD_MARK_BYTES)) })
    at = end
  }
  // A full read has room for the longest record, so a partial record in a shorter read means that the log ends within that record.
  if (at < read.length && read.length - at < LOG_READ_BYTES && read.length < LOG_READ_BYTES) {
    throw new FormatError('length', 'the log ends in the middle of a record')
  }
  return records
}

/** The last end of a record at or before `limit`. Leaves checksums to readers: those of several megabytes would block the process. */
export function lastEndIn(records: Buffer, limit: number): number {
  let end = 0
  while (end + RECORD_HEADER_BYTES <= limit) {
    const next = end + RECORD_HEADER_BYTES + records.readUInt32LE(end)
    if (next > limit) break
    end = next
  }
  return end
}

/** The length is the seed, so that zeros aren't a valid record. */
function checksumOf(bytes: Buffer): number {
  return Number(xxh3(bytes, BigInt(bytes.length)) & 0xffff_ffffn)
}
