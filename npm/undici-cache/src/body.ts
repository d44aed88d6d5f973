// Layout of a body: inline in its record, or in segments.

import { ByteReader, ByteWriter, FormatError, invalid } from './bytes.js'
import { Kind, openFrame, sealFrame } from './frame.js'

export const INLINE_BYTES_MAX = 4096
export const SEGMENT_BYTES_MAX = 1_048_576
const CELLS_MAX = 65_536
const RUNS_MAX = 256
const FRAGMENTS_MAX = 64
const STATES = ['complete', 'part'] as const
/** Reserved: older gateways wrote it for bodies that they passed on as they arrived. */
const RESERVED_STATE = 3
const INLINE = 1
const SEGMENTS = 2

export interface Run {
  readonly first: number
  readonly count: number
}

export interface Fragment {
  readonly first: number
  readonly bytes: number
  readonly fill: string
}

export interface Layout {
  readonly fill: string
  readonly cellBytes: number
  readonly runs: readonly Run[]
  readonly fragments: readonly Fragment[]
}

export interface Body {
  readonly state: (typeof STATES)[number]
  readonly completeBytes: number | undefined
  readonly content: Buffer | Layout
}

export interface Segment {
  readonly fill: string
  readonly index: number
  readonly cellBytes: number
  readonly data: Buffer
}

export function readBody(reader: ByteReader): Body {
  const number = reader.u8()
  if (number === RESERVED_STATE) throw new FormatError('other', 'obsolete body state')
  const state = STATES[number - 1]
  if (state === undefined) throw invalid('unknown body state')
  const completeBytes = reader.sizeIfAny()
  const body = { state, completeBytes, content: readContent(reader) }
  checkBody(body)
  return body
}

function readContent(reader: ByteReader): Buffer | Layout {
  const form = reader.u8()
  if (form === INLINE) return reader.take(reader.u16())
  if (form === SEGMENTS) return readLayout(reader)
  throw invalid('unknown body form')
}

export function writeBody(writer: ByteWriter, body: Body): void {
  checkBody(body)
  writer.u8(STATES.indexOf(body.state) + 1)
  writer.sizeIfAny(body.completeBytes)
  if (Buffer.isBuffer(body.content)) {
    writer.u8(INLINE)
    writer.u16(body.content.length)
    writer.bytes(body.content)
  } else {
    writer.u8(SEGMENTS)
    writeLayout(writer, body.content)
  }
}

function readLayout(reader: ByteReader): Layout {
  const [fill, cellBytes, runCount] = [reader.fill(), reader.u32(), reader.u16()]
  if (runCount > RUNS_MAX) throw invalid('a body has too many pieces')
  const runs = reader.list(runCount, () => ({ first: reader.u32(), count: reader.u32() }))
  const fragmentCount = reader.u8()
  if (fragmentCount > FRAGMENTS_MAX) throw invalid('a body has too many pieces')
  const fragments = reader.list(fragmentCount, () => ({
    first: reader.size(), bytes: reader.u32(), fill: reader.fill(),
  }))
  return { fill, cellBytes, runs, fragments }
}

function writeLayout(writer: ByteWriter, { fill, cellBytes, runs, fragments }: Layout): void {
  writer.fill(fill)
  writer.u32(cellBytes)
  writer.u16(runs.length)
  for (const run of runs) {
    writer.u32(run.first)
    writer.u32(run.count)
  }
  writer.u8(fragments.length)
  for (const fragment of fragments) {
    writer.size(fragment.first)
    writer.u32(fragment.bytes)
    writer.fill(fragment.fill)
  }
}

function checkBody({ state, completeBytes, content }: Body): void {
  const isRight = Buffer.isBuffer(content)
    ? state === 'complete' && completeBytes === content.length && content.length <= INLINE_BYTES_MAX
    : heldBytes(content, completeBytes) === completeBytes || state !== 'complete'
  if (!isRight) throw invalid('the body length contradicts its state')
}

/** The number of bytes held of a body of this length. */
function heldBytes(layout: Layout, completeBytes = Number.MAX_SAFE_INTEGER): number {
  if (layout.cellBytes === 0 || layout.cellBytes > SEGMENT_BYTES_MAX) throw invalid('the size of a cell is out of range')
  checkRuns(layout.runs)
  const inRuns = layout.runs.reduce((sum, run) => sum + runBytes(run, layout.cellBytes, completeBytes), 0)
  let free = 0
  for (const fragment of layout.fragments) free = endOfFragment(fragment, free, layout, completeBytes)
  return inRuns + layout.fragments.reduce((sum, fragment) => sum + fragment.bytes, 0)
}

/** Checks that runs are in order, with at least one cell between them. */
function checkRuns(runs: readonly Run[]): void {
  let free = 0
  for (const { first, count } of runs) {
    const end = first + count
    if (count === 0 || first < free || end > CELLS_MAX) throw invalid('runs are out of order or out of range')
    free = end + 1
  }
}

function runBytes({ first, count }: Run, cellBytes: number, completeBytes: number): number {
  const lastBegins = (first + count - 1) * cellBytes
  if (lastBegins >= completeBytes) throw invalid('a cell begins after the end of the body')
  return Math.min(lastBegins + cellBytes, completeBytes) - first * cellBytes
}

function endOfFragment({ first, bytes }: Fragment, free: number, layout: Layout, completeBytes: number): number {
  const cell = Math.floor(first / layout.cellBytes)
  const cellBegins = cell * layout.cellBytes
  const cellEnds = Math.min(cellBegins + layout.cellBytes, completeBytes)
  const end = first + bytes
  const isInRun = layout.runs.some((run) => cell >= run.first && cell < run.first + run.count)
  const isWhole = first === cellBegins && end === cellEnds
  const isWithin = bytes > 0 && cell < CELLS_MAX && first >= free && end <= cellEnds
  if (!isWithin || isWhole || isInRun) throw invalid('a fragment is out of place')
  return end
}

export function decodeSegment(bytes: Buffer, fill: string, index: number): Segment {
  const reader = openFrame(bytes, Kind.Segment)
  const segment = { fill: reader.fill(), index: reader.u32(), cellBytes: reader.u32(), data: reader.take(reader.u32()) }
  reader.end()
  if (segment.fill !== fill || segment.index !== index) throw new FormatError('other', 'another segment than expected')
  checkSegment(segment)
  return segment
}

export function encodeSegment(segment: Segment): Buffer {
  checkSegment(segment)
  const writer = new ByteWriter()
  writer.fill(segment.fill)
  writer.u32(segment.index)
  writer.u32(segment.cellBytes)
  writer.u32(segment.data.length)
  writer.bytes(segment.data)
  return sealFrame(writer.finish(), Kind.Segment)
}

function checkSegment({ index, cellBytes, data }: Segment): void {
  if (index >= CELLS_MAX) throw invalid('the index of a segment is too large')
  if (cellBytes > SEGMENT_BYTES_MAX || data.length === 0 || data.length > cellBytes) {
    throw invalid('the size of a segment is out of range')
  }
}
