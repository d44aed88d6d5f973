// The byte formats shared by all instances, checked with the vectors of conformance/store.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { decodeSegment, encodeSegment } from '../src/body.js'
import { FormatError } from '../src/bytes.js'
import { type Carried, decodeCarried, encodeCarried, isCarried } from '../src/carried.js'
import { Kind } from '../src/frame.js'
import { cacheKeyOf, targetOf } from '../src/key.js'
import { continuityOf, decodeLogHeader, decodeLogRecords, encodeLogRecord, LOG_HEADER_BYTES, RECORD_MARK_BYTES } from '../src/log-bytes.js'
import { decodeList, decodeMember, encodeList, encodeMember, memberName } from '../src/member-bytes.js'
import { decodePurge, encodePurge } from '../src/purge-record.js'
import { decodeRecordOf, encodeRecord } from '../src/record.js'

interface Vector {
  name: string
  bytes: string
  decoded?: string
  error?: string
}

function vectors<T = Vector>(file: string): T[] {
  const lines: T[] = JSON.parse(readFileSync(new URL(`../../../../conformance/store/${file}`, import.meta.url), 'utf8'))
  assert.ok(lines.length > 0)
  return lines
}

interface KeyCase {
  name: string
  a: Record<string, unknown>
  b: Record<string, unknown>
  expect: 'same' | 'different'
}

test('requests have one key where they have one at the gateway', () => {
  const file = new URL('../../../../conformance/decisions/key.json', import.meta.url)
  const cases: KeyCase[] = JSON.parse(readFileSync(file, 'utf8'))
  // Query rules, additional key parts, and methods that share the key of GET exist only in the gateway.
  const own = cases.filter((one) => ['ignore', 'keep', 'sorted'].every((key) => !(key in one)))
    .filter(({ a, b }) => [a, b].every((side) => !('extra' in side) && side['method'] !== 'HEAD' && String(side['target'] ?? '/').match(/^$|^[/?]/)))
  assert.ok(own.length > 20)
  const keyOf = ({ site = 's', scheme = 'http', authority = 'a.example', target = '/', method = 'GET' }: Record<string, unknown>): string =>
    cacheKeyOf(String(site), targetOf(`${String(scheme)}://${String(authority)}`, String(target)), String(method)).toString('hex')
  for (const { name, a, b, expect } of own) assert.equal(keyOf(a) === keyOf(b) ? 'same' : 'different', expect, name)
})

/** A vector is refused, or decoded and encoded to the same bytes. */
function check(vector: Vector, again: (bytes: Buffer) => Buffer): void {
  const bytes = Buffer.from(vector.bytes, 'hex')
  if (vector.error !== undefined) {
    assert.throws(() => again(bytes), FormatError, vector.name)
    return
  }
  assert.equal(again(bytes).toString('hex'), vector.bytes, vector.name)
}

const PROBLEMS: Readonly<Record<string, string>> = {
  Length: 'length', Checksum: 'checksum', NotOurs: 'not-ours', Other: 'other', Reserved: 'other', Unauthenticated: 'unauthenticated',
}

/** The reason for refusing bytes decides how they are handled. */
function checkProblem(vector: Vector, decode: (bytes: Buffer) => unknown): void {
  if (vector.error === undefined) return
  const problem = vector.error.startsWith('UnknownVersion') ? 'version' : PROBLEMS[vector.error] ?? 'invalid'
  assert.throws(() => decode(Buffer.from(vector.bytes, 'hex')), { problem }, vector.name)
}

test('records are read and written as by the gateway', () => {
  const key = Buffer.from('key')
  for (const vector of vectors('records.json')) {
    const asked = vector.name.startsWith('requested under') ? Buffer.from('another') : key
    if (vector.name.includes('tag')) continue
    check(vector, (bytes) => encodeRecord(decodeRecordOf(asked, bytes, Kind.Primary), Kind.Primary))
    checkProblem(vector, (bytes) => decodeRecordOf(asked, bytes, Kind.Primary))
  }
})

test('segments are read and written as by the gateway', () => {
  const fill = '00000000000000070000000000000008'
  for (const vector of vectors('segments.json')) {
    const index = vector.name.endsWith('as 4') ? 4 : 3
    check(vector, (bytes) => encodeSegment(decodeSegment(bytes, fill, index)))
    checkProblem(vector, (bytes) => decodeSegment(bytes, fill, index))
  }
})

test('purges are read and written as by the gateway', () => {
  for (const vector of vectors('purges.json')) check(vector, (bytes) => encodePurge(decodePurge(bytes)))
})

/** A carried record without its purge, in the format of the vectors. */
function carriedText({ id, origin, after, last, what }: Carried): string {
  const kind = Buffer.isBuffer(what) ? 'Purge(' : { position: 'Position }', beginning: 'Beginning }' }[what]
  const record = `LastRecord { begins: LogOffset(${last.begins}), end: LogOffset(${last.end}), hash: ${last.hash} }`
  const list = (hex: string): string => [...Buffer.from(hex, 'hex')].join(', ')
  return `Carried { id: PurgeId([${list(id)}]), origin: LogId([${list(origin)}]), after: LogOffset(${after}), last: ${record}, what: ${kind}`
}

test('purges of other regions are read and written as by the gateway', () => {
  for (const vector of vectors('carried.json')) {
    check(vector, (bytes) => encodeCarried(decodeCarried(bytes)))
    const bytes = Buffer.from(vector.bytes, 'hex')
    if (vector.decoded === undefined) continue
    assert.ok(isCarried(bytes), vector.name)
    const carried = decodeCarried(bytes)
    assert.ok(vector.decoded.startsWith(carriedText(carried)), vector.name)
    if (vector.name === 'a purge') assert.deepEqual(decodePurge(carried.what as Buffer).what, { url: 'https://a.example/x?y=1' })
  }
  for (const vector of vectors('purges.json')) assert.ok(!isCarried(Buffer.from(vector.bytes, 'hex')), vector.name)
})

test('those that share a store are read and written as by the gateway', () => {
  for (const vector of vectors('members.json')) check(vector, (bytes) => encodeMember(decodeMember(bytes)))
  for (const vector of vectors('member-list.json')) check(vector, (bytes) => encodeList(decodeList(bytes)))
})

test('the names of members are as long as a record takes, and text', () => {
  for (const [given, kept] of [['cache-1', 'cache-1'], ['a\u0000b\nc\u0085', 'abc'], ['x'.repeat(70), 'x'.repeat(64)], ['ä'.repeat(40), 'ä'.repeat(32)]] as const) {
    assert.equal(memberName(given), kept)
    const member = { id: '01'.repeat(16), read: 'left', name: memberName(given) } as const
    assert.deepEqual(decodeMember(encodeMember(member)), member)
  }
})

interface LogVector extends Vector {
  id: string
  floor: number
  records: { bytes: string; end: number }[]
}

test('the log is read as by the gateway', () => {
  for (const vector of vectors<LogVector>('log.json')) {
    const bytes = Buffer.from(vector.bytes, 'hex')
    const header = decodeLogHeader(bytes)
    if (vector.error === 'NoLog') {
      assert.equal(header, undefined, vector.name)
      continue
    }
    assert.ok(header, vector.name)
    assert.deepEqual([header.id, header.floor], [vector.id, vector.floor], vector.name)
    const read = (): unknown => decodeLogRecords(bytes.subarray(LOG_HEADER_BYTES), header.floor)
      .map((record) => ({ end: record.end, bytes: record.bytes.toString('hex') }))
    if (vector.error === undefined) assert.deepEqual(read(), vector.records, vector.name)
    else assert.throws(read, FormatError, vector.name)
  }
})

interface ContinuityVector {
  name: string
  log: string
  floor: string
  end: string
  read_log: string
  read_to: string
  last?: string
  there?: string
  judgement: string
}

test('a log goes on from what was read of it where it does to the gateway', () => {
  const markOf = (record: string | undefined): Buffer | undefined => record === undefined
    ? undefined
    : encodeLogRecord(Buffer.from(record, 'hex')).subarray(0, RECORD_MARK_BYTES)
  for (const { name, log, floor, end, read_log, read_to, last, there, judgement } of vectors<ContinuityVector>('log-continuity.json')) {
    const state = { id: log, floor: Number(floor), end: Number(end), there: markOf(there) }
    const continuity = continuityOf(state, { id: read_log, offset: Number(read_to), last: markOf(last) })
    assert.equal(continuity, judgement.toLowerCase(), name)
  }
})
