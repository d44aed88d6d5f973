// A purge of another region in the shared log: docs/internals/purge-log.md, "Purges of other regions".

import { ByteReader, ByteWriter, FormatError, invalid } from './bytes.js'

/** Says how far the log of another region has been carried into this one. */
export interface Carried {
  /** Drawn for this record: 32 hexadecimal digits. */
  readonly id: string
  /** The id of the log to which the purge was first appended: 32 hexadecimal digits. */
  readonly origin: string
  /** The position up to which that log had been carried before. A reader that knows less has missed purges. */
  readonly after: bigint
  /** The record of that log up to which everything has been carried. */
  readonly last: LastRecord
  /** The bytes of the purge in `last`, only the position, or the beginning of the known part of that log. */
  readonly what: Buffer | 'position' | 'beginning'
}

/** A record by its position and hash. If start and end are equal, there is no record. */
export interface LastRecord {
  readonly begins: bigint
  readonly end: bigint
  readonly hash: bigint
}

const VERSION = 1
const FORM = 4
const KINDS = ['purge', 'position', 'beginning'] as const

/** Whether a record of the log is a carried one rather than a purge of this region. */
export function isCarried(bytes: Buffer): boolean {
  return bytes[0] === VERSION && bytes[1] === FORM
}

export function encodeCarried({ id, origin, after, last, what }: Carried): Buffer {
  const [kind, purge] = typeof what === 'string' ? [what, Buffer.alloc(0)] as const : ['purge', what] as const
  const writer = new ByteWriter()
  for (const value of [VERSION, FORM, KINDS.indexOf(kind) + 1, 0]) writer.u8(value)
  writer.bytes(Buffer.from(id + origin, 'hex'))
  for (const value of [after, last.begins, last.end, last.hash]) writer.u64(value)
  writer.bytes(purge)
  return writer.finish()
}

export function decodeCarried(bytes: Buffer): Carried {
  const reader = new ByteReader(bytes)
  if (reader.u8() !== VERSION) throw invalid('unknown version of a carried purge')
  if (reader.u8() !== FORM) throw invalid('unknown form of a carried purge')
  const kind = KINDS[reader.u8() - 1]
  if (kind === undefined) throw invalid('unknown kind of a carried purge')
  if (reader.u8() !== 0) throw invalid('unknown flag of a carried purge')
  const [id, origin] = [reader.take(16).toString('hex'), reader.take(16).toString('hex')]
  const after = reader.u64()
  const last = { begins: reader.u64(), end: reader.u64(), hash: reader.u64() }
  return { id, origin, after, last, what: readWhat(reader, kind) }
}

function readWhat(reader: ByteReader, kind: typeof KINDS[number]): Carried['what'] {
  if (kind === 'purge' && reader.left === 0) throw new FormatError('length', 'a carried purge is missing')
  if (kind === 'purge') return reader.take(reader.left)
  reader.end()
  return kind
}
