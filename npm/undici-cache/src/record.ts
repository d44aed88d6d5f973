// Records of stored responses, in the byte format of the Larder gateway: docs/internals/record-format.md.

import { type Body, readBody, writeBody } from './body.js'
import { ByteReader, ByteWriter, FormatError, invalid } from './bytes.js'
import { Kind, openFrame, sealFrame } from './frame.js'

export type FieldLine = readonly [name: string, value: string]
export type NamedValue = readonly [name: string, value: string | null]

/** A place in the purge log. */
export interface LogCursor {
  readonly id: string
  readonly offset: number
}

/** A hint for requests that wait for a response; it is never an answer itself. */
export interface Note {
  readonly kind: 'not-shared' | 'gave-up'
  readonly scope: number
  readonly until: number
  readonly because: string
}

export interface Response {
  readonly status: number
  readonly hadCredentials: boolean
  readonly hadContent: boolean
  readonly requestTime: number
  readonly responseTime: number
  readonly storeTime: number
  readonly staleSince: number | undefined
  readonly log: LogCursor | undefined
  readonly method: string
  readonly target: string
  readonly reason: string | null
  readonly head: readonly FieldLine[]
  readonly judged: readonly FieldLine[]
  readonly request: readonly NamedValue[]
  readonly body: Body
}

export interface Variant {
  readonly nominated: readonly NamedValue[]
  /** 32 hexadecimal digits. */
  readonly id: string
  /** `undefined` if the response is stored separately, under its id. */
  readonly response: Response | undefined
}

/** The stored responses under a cache key. */
export interface StoredRecord {
  readonly key: Buffer
  readonly note: Note | undefined
  readonly variants: readonly Variant[]
}

export type RecordKind = typeof Kind.Primary | typeof Kind.Response

export const VARIANTS_MAX = 32
const LINES_MAX = 1024
const BECAUSE_BYTES_MAX = 64
const HAD_CREDENTIALS = 1
const HAD_CONTENT = 2
const INSIDE = 1
const APART = 2
const NOTE_KINDS = ['not-shared', 'gave-up'] as const
const NO_LOG = '0'.repeat(32)

/** Decodes a record. The caller compares `record.key` with the requested key. */
export function decodeRecord(bytes: Buffer, kind: RecordKind): StoredRecord {
  const reader = openFrame(bytes, kind)
  const key = reader.raw()
  const note = readNote(reader)
  const count = reader.u8()
  if (count > VARIANTS_MAX) throw invalid('too many variants')
  const lines = new LineBudget()
  const variants = reader.list(count, () => readVariant(reader, lines))
  reader.end()
  const record = { key, note, variants }
  checkRecord(record, kind)
  return record
}

/** Decodes the record of a key; throws if it belongs to a different key. */
export function decodeRecordOf(key: Buffer, bytes: Buffer, kind: RecordKind): StoredRecord {
  const record = decodeRecord(bytes, kind)
  if (!record.key.equals(key)) throw new FormatError('other', 'the record of another key')
  return record
}

export function encodeRecord(record: StoredRecord, kind: RecordKind): Buffer {
  checkRecord(record, kind)
  const writer = new ByteWriter()
  writer.text(record.key)
  writeNote(writer, record.note)
  writer.u8(record.variants.length)
  for (const variant of record.variants) writeVariant(writer, variant)
  return sealFrame(writer.finish(), kind)
}

function checkRecord({ variants, note }: StoredRecord, kind: RecordKind): void {
  if (variants.length > VARIANTS_MAX) throw invalid('too many variants')
  if (variants.reduce((sum, variant) => sum + linesOf(variant), 0) > LINES_MAX) throw invalid('too many lines')
  const isOneInside = variants.length === 1 && variants[0]?.response !== undefined && note === undefined
  if (kind === Kind.Response && !isOneInside) throw invalid('a response must have one variant, stored inside the record')
}

function linesOf({ nominated, response }: Variant): number {
  const inside = response ? response.head.length + response.judged.length + response.request.length : 0
  return nominated.length + inside
}

/** The number of lines that a record may still have. */
class LineBudget {
  #left = LINES_MAX

  take(count: number): number {
    this.#left -= count
    if (this.#left < 0) throw invalid('too many lines')
    return count
  }
}

function readNote(reader: ByteReader): Note | undefined {
  const number = reader.u8()
  if (number === 0) return undefined
  const kind = NOTE_KINDS[number - 1]
  if (kind === undefined) throw invalid('unknown kind of note')
  const [scope, until, because] = [reader.u8(), reader.size(), reader.raw()]
  if (because.length > BECAUSE_BYTES_MAX) throw invalid('a reason code is too long')
  return { kind, scope, until, because: because.toString('utf8') }
}

function writeNote(writer: ByteWriter, note: Note | undefined): void {
  if (note === undefined) return writer.u8(0)
  writer.u8(NOTE_KINDS.indexOf(note.kind) + 1)
  writer.u8(note.scope)
  writer.size(note.until)
  writer.text(note.because)
}

function readVariant(reader: ByteReader, lines: LineBudget): Variant {
  const nominated = readNamedValues(reader, lines)
  const id = reader.fill()
  const place = reader.u8()
  if (place !== INSIDE && place !== APART) throw invalid('unknown place of a variant')
  return { nominated, id, response: place === INSIDE ? readResponse(reader, lines) : undefined }
}

function writeVariant(writer: ByteWriter, { nominated, id, response }: Variant): void {
  writeNamedValues(writer, nominated)
  writer.fill(id)
  writer.u8(response ? INSIDE : APART)
  if (response) writeResponse(writer, response)
}

function readResponse(reader: ByteReader, lines: LineBudget): Response {
  const status = reader.u16()
  const marks = reader.u8()
  if ((marks & ~(HAD_CREDENTIALS | HAD_CONTENT)) !== 0) throw invalid('unknown flag of the request')
  return {
    status,
    hadCredentials: (marks & HAD_CREDENTIALS) !== 0,
    hadContent: (marks & HAD_CONTENT) !== 0,
    requestTime: reader.size(),
    responseTime: reader.size(),
    storeTime: reader.size(),
    staleSince: reader.sizeIfAny(),
    log: readLogCursor(reader),
    method: reader.text(),
    target: reader.text(),
    reason: reader.textOrNull(),
    head: readFieldLines(reader, lines),
    judged: readFieldLines(reader, lines),
    request: readNamedValues(reader, lines),
    body: readBody(reader),
  }
}

function writeResponse(writer: ByteWriter, response: Response): void {
  writer.u16(response.status)
  writer.u8((response.hadCredentials ? HAD_CREDENTIALS : 0) | (response.hadContent ? HAD_CONTENT : 0))
  writer.size(response.requestTime)
  writer.size(response.responseTime)
  writer.size(response.storeTime)
  writer.sizeIfAny(response.staleSince)
  writer.bytes(Buffer.from(response.log?.id ?? NO_LOG, 'hex'))
  writer.size(response.log?.offset ?? 0)
  writer.text(response.method)
  writer.text(response.target)
  writer.textOrNull(response.reason)
  writeFieldLines(writer, response.head)
  writeFieldLines(writer, response.judged)
  writeNamedValues(writer, response.request)
  writeBody(writer, response.body)
}

function readLogCursor(reader: ByteReader): LogCursor | undefined {
  const id = reader.take(16).toString('hex')
  const offset = reader.size()
  if (id !== NO_LOG) return { id, offset }
  if (offset !== 0) throw invalid('an offset without a log')
  return undefined
}

function readFieldLines(reader: ByteReader, lines: LineBudget): FieldLine[] {
  return reader.list(lines.take(reader.u16()), () => [reader.text(), reader.text()] as const)
}

function readNamedValues(reader: ByteReader, lines: LineBudget): NamedValue[] {
  return reader.list(lines.take(reader.u16()), () => [reader.text(), reader.textOrNull()] as const)
}

function writeFieldLines(writer: ByteWriter, lines: readonly FieldLine[]): void {
  writer.u16(lines.length)
  for (const [name, value] of lines) {
    writer.text(name)
    writer.text(value)
  }
}

function writeNamedValues(writer: ByteWriter, lines: readonly NamedValue[]): void {
  writer.u16(lines.length)
  for (const [name, value] of lines) {
    writer.text(name)
    writer.textOrNull(value)
  }
}
