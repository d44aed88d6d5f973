// Purges of other regions in the log of this one: each applies once, and missing ones count as a soft purge of everything.

import assert from 'node:assert/strict'
import { after, before, test, type TestContext } from 'node:test'
import { Redis } from 'iovalkey'
import { type Carried, encodeCarried } from '../src/carried.js'
import { targetOf } from '../src/key.js'
import { encodeLogHeader, encodeLogRecord, LOG_HEADER_BYTES, newLogHeader } from '../src/log-bytes.js'
import { checkConnection } from '../src/options.js'
import { type CarriedEffect, Origins } from '../src/origins.js'
import { encodePurge, newPurge, type PurgeRecord } from '../src/purge-record.js'
import { SharedStore } from '../src/shared-store.js'
import { type Server, startRedis } from './servers.js'

const PURGE = newPurge({ url: 'http://a.test/x' }, 7)

function carried(afterwards: number, end: number, what: Carried['what'], origin = 1): Carried {
  const last = { begins: BigInt(Math.max(0, end - 5)), end: BigInt(end), hash: 0n }
  return { id: '00'.repeat(16), origin: origin.toString(16).padStart(32, '0'), after: BigInt(afterwards), last, what }
}

const purge = (afterwards: number, end: number, origin = 1): Carried => carried(afterwards, end, encodePurge(PURGE), origin)
const position = (at: number, origin = 1): Carried => carried(at, at, 'position', origin)
const beginning = (at: number): Carried => carried(at, at, 'beginning')

/** Records, the effect of the last one, and the end that is known afterwards. */
const EFFECTS: readonly (readonly [records: readonly Carried[], effect: CarriedEffect, end: number])[] = [
  [[purge(5, 10)], 'next', 10],
  [[beginning(5)], 'unknown', 5],
  [[beginning(5), purge(5, 10)], 'next', 10],
  [[beginning(5), purge(5, 10), purge(10, 20)], 'next', 20],
  [[beginning(5), purge(5, 10), purge(5, 10)], 'known', 10],
  [[beginning(5), purge(5, 10), purge(10, 20), purge(5, 10)], 'known', 20],
  // Two carriers, one of which had skipped a record that isn't carried.
  [[beginning(5), purge(5, 10), purge(5, 20)], 'next', 20],
  // The log of this region has lost its end, and a carrier doesn't know that.
  [[beginning(5), purge(10, 20)], 'unknown', 20],
  [[beginning(5), position(10)], 'unknown', 10],
  [[beginning(5), purge(5, 10), position(10)], 'next', 10],
  [[beginning(5), purge(5, 10), carried(10, 30, 'position')], 'next', 30],
  [[beginning(5), purge(5, 10), purge(10, 20), position(10)], 'known', 20],
  // The log of the other region was set back.
  [[beginning(5), purge(5, 50), beginning(10)], 'unknown', 10],
  [[beginning(5), purge(5, 50), beginning(10), purge(10, 20)], 'next', 20],
]

test('each record counts once, and a gap is noticed', () => {
  for (const [records, expected, end] of EFFECTS) {
    const origins = new Origins()
    const effects = records.map((record) => origins.note(record))
    const name = JSON.stringify(records.map(({ after, last, what }) => [Number(after), Number(last.end), what]))
    assert.equal(effects.at(-1), expected, name)
    assert.equal(origins.endIn(records[0]!.origin), BigInt(end), name)
  }
})

test('of more than 64 logs, the one noted least recently is forgotten', () => {
  const origins = new Origins()
  for (let origin = 1; origin <= 64; origin++) origins.note(purge(5, 10, origin))
  assert.equal(origins.note(position(10)), 'next', 'a known position is noted again')
  assert.equal(origins.note(purge(5, 10, 3)), 'known', 'a known purge is not')
  for (let origin = 65; origin <= 66; origin++) origins.note(purge(5, 10, origin))
  const left = Array.from({ length: 66 }, (_, at) => at + 1).filter((origin) => origins.endIn(position(0, origin).origin) !== undefined)
  assert.deepEqual(left, [1, ...Array.from({ length: 63 }, (_, at) => at + 4)])
  origins.clear()
  assert.equal(origins.endIn(position(0).origin), undefined)
})

let server: Server
let client: Redis
before(async () => {
  server = await startRedis()
  client = new Redis({ host: '127.0.0.1', port: server.port })
})
after(async () => {
  client.disconnect()
  await server.stop()
})

type Heard = readonly [mode: PurgeRecord['mode'], what: PurgeRecord['what']]
const SAME: Heard = ['hard', PURGE.what]
const ALL_SOFT: Heard = ['soft', 'everything']
const ALL: Heard = ['hard', 'everything']

/** Records after a carried purge up to position 10, the purges that listeners hear, and the verdict on an older response of another URL. */
const READ: readonly (readonly [records: readonly Buffer[], heard: readonly Heard[], other: 'current' | 'stale' | 'purged'])[] = [
  [[encodeCarried(purge(10, 20))], [SAME], 'current'],
  [[encodeCarried(purge(5, 10)), encodeCarried(position(10)), encodeCarried(position(5))], [], 'current'],
  [[encodeCarried(purge(5, 10)), encodePurge(PURGE)], [SAME], 'current'],
  [[encodeCarried(purge(15, 20)), encodeCarried(purge(15, 20))], [ALL_SOFT], 'stale'],
  [[encodeCarried(position(15))], [ALL_SOFT], 'stale'],
  [[encodeCarried(beginning(5)), encodeCarried(purge(5, 10))], [ALL_SOFT, SAME], 'stale'],
  [[encodeCarried(carried(10, 20, Buffer.from('rubbish')))], [ALL], 'purged'],
  [[encodeCarried(carried(5, 10, Buffer.from('rubbish')))], [], 'current'],
  [[encodeCarried(carried(10, 20, encodeCarried(purge(10, 20))))], [ALL], 'purged'],
  [[encodeCarried(purge(10, 20)).subarray(0, 40)], [ALL], 'purged'],
]

/** A store whose log begins with a carried purge up to position 10, and the purges that its listener hears from then on. */
async function openStore(t: TestContext, prefix: string): Promise<{ shared: SharedStore; purges: PurgeRecord[] }> {
  const purges: PurgeRecord[] = []
  const events = { changed: () => undefined, up: () => undefined, down: () => undefined }
  const shared = new SharedStore(checkConnection({ ...server.options, prefix }), false, events, (some) => purges.push(...some))
  t.after(() => shared.close())
  await client.set(shared.names.log, newLog(purge(5, 10)))
  await shared.settled()
  await shared.log.readOn()
  assert.equal(purges.length, 1)
  purges.length = 0
  return { shared, purges }
}

function newLog(record: Carried): Buffer {
  return Buffer.concat([encodeLogHeader(newLogHeader()), encodeLogRecord(encodeCarried(record))])
}

async function readOn({ log }: SharedStore): Promise<void> {
  log.suspect()
  await log.readOn()
}

function heardOf(purges: readonly PurgeRecord[]): Heard[] {
  return purges.map(({ mode, what }) => [mode, what])
}

for (const [at, [records, heard, expected]] of READ.entries()) {
  test(`records of other regions are read, case ${at}: ${expected}`, async (t) => {
    const { shared, purges } = await openStore(t, `${at}:`)
    const [place, begunMs] = [shared.log.cursor!, Date.now()]
    const length = await client.append(shared.names.log, Buffer.concat(records.map(encodeLogRecord)))
    await readOn(shared)
    assert.deepEqual(heardOf(purges), heard)
    assert.equal(shared.log.cursor!.offset, length - LOG_HEADER_BYTES, 'all is read')
    const judge = (from = place): unknown => shared.log.judge({ target: targetOf('http://a.test', '/other'), tags: [] }, from)
    const verdict = judge()
    if (expected !== 'stale') assert.equal(verdict, expected)
    else assert.ok((verdict as { staleSince: number }).staleSince >= begunMs, 'stale from now on')
    assert.equal(judge(shared.log.cursor), 'current', 'asked for after it')
  })
}

test('with another log, nothing is known of other regions', async (t) => {
  const { shared, purges } = await openStore(t, 'another:')
  await client.set(shared.names.log, newLog(purge(15, 20)))
  await readOn(shared)
  assert.deepEqual(heardOf(purges), [SAME], 'no gap')
})
