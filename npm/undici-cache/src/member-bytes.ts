// The byte format of fleet members: docs/internals/coherence.md, "Who shares the tier".

import { FormatError, invalid } from './bytes.js'
import { xxh3 } from './checksum.js'
import type { LogCursor } from './record.js'

/** A gateway or process that shares a store; its id is 32 hexadecimal digits. */
export interface Member {
  readonly id: string
  /** How far it has read the log. */
  readonly read: LogCursor | 'left'
  readonly name: string
}

export interface MemberList {
  /** A list that was lost and recreated has a different id. */
  readonly id: string
  readonly members: readonly string[]
}

export const MEMBERS_MAX = 1000
const NAME_BYTES_MAX = 64
const ID_BYTES = 16
const LIST_ID_BYTES = 20
const OFFSET_BYTES = 8
const CHECKSUM_BYTES = 8
const MEMBER = Buffer.from('LAR\u0001I\0\0\0')
const LIST = Buffer.from('LAR\u0001M\0\0\0')
/** The place that a leaving member reports, beyond the end of any log, so that the others don't wait for it. */
const LEFT_LOG = '0'.repeat(2 * ID_BYTES)
const LEFT_OFFSET = 0xffff_ffff_ffff_ffffn

const CONTROLS = /\p{Cc}/u

export function encodeMember({ id, read, name }: Member): Buffer {
  const offset = Buffer.alloc(OFFSET_BYTES)
  offset.writeBigUInt64LE(read === 'left' ? LEFT_OFFSET : BigInt(read.offset))
  const log = read === 'left' ? LEFT_LOG : read.id
  return sealed([MEMBER, Buffer.from(id, 'hex'), Buffer.from(log, 'hex'), offset, Buffer.from(name)])
}

export function decodeMember(bytes: Buffer): Member {
  const content = unsealed(bytes, MEMBER)
  const logAt = ID_BYTES
  const offsetAt = logAt + ID_BYTES
  const nameAt = offsetAt + OFFSET_BYTES
  if (content.length < nameAt) throw new FormatError('length', 'the record of a member is too short')
  const [id, log] = [content.toString('hex', 0, logAt), content.toString('hex', logAt, offsetAt)]
  return { id, read: placeIn(log, content.readBigUInt64LE(offsetAt)), name: nameIn(content.subarray(nameAt)) }
}

function placeIn(id: string, offset: bigint): Member['read'] {
  if (id === LEFT_LOG && offset === LEFT_OFFSET) return 'left'
  if (offset > BigInt(Number.MAX_SAFE_INTEGER)) throw invalid('the offset of a member is too large')
  return { id, offset: Number(offset) }
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

function nameIn(bytes: Buffer): string {
  if (bytes.length > NAME_BYTES_MAX) throw new FormatError('length', 'the name of a member is too long')
  try {
    const name = utf8.decode(bytes)
    if (!CONTROLS.test(name)) return name
  } catch {
    // Invalid UTF-8 is refused below, like control characters.
  }
  throw invalid('the name of a member is not valid text')
}

/** The part of a name that fits into a record. */
export function memberName(text: string): string {
  let name = ''
  for (const character of text) {
    if (CONTROLS.test(character)) continue
    if (Buffer.byteLength(name + character) > NAME_BYTES_MAX) break
    name += character
  }
  return name
}

export function encodeList({ id, members }: MemberList): Buffer {
  return sealed([LIST, ...[id, ...members].map((digits) => Buffer.from(digits, 'hex'))])
}

export function decodeList(bytes: Buffer): MemberList {
  const content = unsealed(bytes, LIST)
  const ids = content.subarray(LIST_ID_BYTES)
  if (content.length < LIST_ID_BYTES || ids.length % ID_BYTES !== 0 || ids.length > MEMBERS_MAX * ID_BYTES) {
    throw new FormatError('length', 'the list of members has a wrong length')
  }
  const members = Array.from({ length: ids.length / ID_BYTES }, (_, at) => ids.toString('hex', at * ID_BYTES, (at + 1) * ID_BYTES))
  return { id: content.toString('hex', 0, LIST_ID_BYTES), members }
}

function sealed(pieces: readonly Buffer[]): Buffer {
  const content = Buffer.concat(pieces)
  const checksum = Buffer.alloc(CHECKSUM_BYTES)
  checksum.writeBigUInt64LE(xxh3(content))
  return Buffer.concat([content, checksum])
}

function unsealed(bytes: Buffer, mark: Buffer): Buffer {
  const end = bytes.length - CHECKSUM_BYTES
  if (end < mark.length || xxh3(bytes.subarray(0, end)) !== bytes.readBigUInt64LE(end)) {
    throw new FormatError('checksum', 'the checksum is wrong')
  }
  if (!bytes.subarray(0, mark.length).equals(mark)) throw invalid('another kind of record, or an unknown version')
  return bytes.subarray(mark.length, end)
}
