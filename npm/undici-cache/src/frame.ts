// The frame of every record: mark, version, kind, length and checksum.

import { ByteReader, FormatError, invalid } from './bytes.js'
import { xxh3 } from './checksum.js'

export const Kind = { Primary: 1, Response: 2, Segment: 3 } as const
export type Kind = (typeof Kind)[keyof typeof Kind]

export const RECORD_BYTES_MAX = 65_536
export const SEGMENT_FRAME_BYTES_MAX = 1_048_640

const MARK = Buffer.from('LAR')
const VERSION = 1
/** Reserved: older gateways recorded the progress of a body under it. */
const RESERVED_KIND = 4
const HEADER_BYTES = 12
const HAS_TAG = 1
const TAG_BYTES = 16
const CHECKSUM_BYTES = 8

/** Checks a frame, and returns a reader of its content. */
export function openFrame(bytes: Buffer, kind: Kind): ByteReader {
  const declared = readHeader(bytes)
  if (declared.length !== bytes.length) throw new FormatError('length', 'the length differs from the declared one')
  const checksumAt = bytes.length - CHECKSUM_BYTES
  if (checksumAt < HEADER_BYTES + declared.tagBytes) throw new FormatError('length', 'the record is too short')
  if (xxh3(bytes.subarray(0, checksumAt)) !== bytes.readBigUInt64LE(checksumAt)) {
    throw new FormatError('checksum', 'the checksum is wrong')
  }
  if (declared.kind !== kind) throw new FormatError('other', 'another kind of record than expected')
  return new ByteReader(bytes.subarray(HEADER_BYTES, checksumAt - declared.tagBytes))
}

/** The kind in the header of a record; `undefined` if the bytes aren't a record of this version. */
export function kindOf(bytes: Buffer): number | undefined {
  try {
    return readHeader(bytes).kind
  } catch {
    return undefined
  }
}

function readHeader(bytes: Buffer): { kind: number; length: number; tagBytes: number } {
  if (bytes.length < HEADER_BYTES) throw new FormatError('length', 'the record is too short')
  if (!bytes.subarray(0, 3).equals(MARK)) throw new FormatError('not-ours', 'not a record')
  const version = bytes.readUInt8(3)
  if (version !== VERSION) throw new FormatError('version', `unknown version ${version}`)
  const [kind, flags, length] = [bytes.readUInt8(4), bytes.readUInt8(5), bytes.readUInt32LE(8)]
  if (kind === RESERVED_KIND) throw new FormatError('other', 'obsolete kind of record')
  if (kind < Kind.Primary || kind > Kind.Segment) throw invalid('unknown kind of record')
  if ((flags & ~HAS_TAG) !== 0 || bytes.readUInt16LE(6) !== 0) throw invalid('unknown flag')
  if (length > bytesMax(kind)) throw invalid('the record is too long')
  return { kind, length, tagBytes: flags & HAS_TAG ? TAG_BYTES : 0 }
}

function bytesMax(kind: number): number {
  return kind === Kind.Segment ? SEGMENT_FRAME_BYTES_MAX : RECORD_BYTES_MAX
}

/** Whether a frame with this content fits the limit of its kind. */
export function fitsFrame(content: Buffer, kind: Kind): boolean {
  return HEADER_BYTES + content.length + CHECKSUM_BYTES <= bytesMax(kind)
}

export function sealFrame(content: Buffer, kind: Kind): Buffer {
  if (!fitsFrame(content, kind)) throw invalid('the record is too long')
  const bytes = Buffer.alloc(HEADER_BYTES + content.length + CHECKSUM_BYTES)
  MARK.copy(bytes)
  bytes.writeUInt8(VERSION, 3)
  bytes.writeUInt8(kind, 4)
  bytes.writeUInt32LE(bytes.length, 8)
  content.copy(bytes, HEADER_BYTES)
  const checksumAt = bytes.length - CHECKSUM_BYTES
  bytes.writeBigUInt64LE(xxh3(bytes.subarray(0, checksumAt)), checksumAt)
  return bytes
}
