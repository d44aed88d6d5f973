// The purge log when it is long, lost, set back or damaged: purges stay in effect, and unknown purges count as purges of everything.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, before, describe, test } from 'node:test'
import { Redis } from 'iovalkey'
import { type Carried, encodeCarried } from '../src/carried.js'
import { type CacheKey, LarderCacheStore } from '../src/index.js'
import { targetOf } from '../src/key.js'
import { encodeLogHeader, encodeLogRecord, LOG_READ_BYTES, newLogHeader } from '../src/log-bytes.js'
import { PurgeIndex, type Subject, type Verdict } from '../src/purge-index.js'
import { encodePurge, newPurge, type Purged, type PurgeMode } from '../src/purge-record.js'
import { eventually, type Server, startRedis } from './servers.js'

const ORIGIN = 'http://log.test'
/** The length at which the log is cut to half. */
const LOG_MAX = 8 << 20

function keyOf(path: string): CacheKey {
  return { origin: ORIGIN, path, method: 'GET', headers: {} }
}

/** A record of the log of another region. */
function carried(position: number, end: number, what: Carried['what']): Buffer {
  const last = { begins: BigInt(position), end: BigInt(end), hash: 0n }
  return encodeLogRecord(encodeCarried({ id: '02'.repeat(16), origin: '01'.repeat(16), after: BigInt(position), last, what }))
}

function purgeOf(path: string): Buffer {
  return encodePurge(newPurge({ url: ORIGIN + path }, Date.now()))
}

async function put(store: LarderCacheStore, path: string): Promise<void> {
  const now = Date.now()
  const stream = store.createWriteStream(keyOf(path), {
    statusCode: 200, statusMessage: 'OK', headers: {}, cacheControlDirectives: {}, cachedAt: now, staleAt: now + 60_000, deleteAt: now + 60_000,
  })
  stream!.end(path)
  await once(stream!, 'finish')
}

for (const tracking of [true, false]) {
  describe(`the log, tracking ${tracking ? 'on' : 'off'}`, () => {
    let server: Server
    let [one, other]: LarderCacheStore[] = []
    let client: Redis
    const redis = (command: string, ...args: (string | Buffer)[]): Promise<unknown> => client.callBuffer(command, ...args)
    const has = async (store: LarderCacheStore, path: string): Promise<boolean> => await store.get(keyOf(path)) !== undefined

    before(async () => {
      server = await startRedis()
      client = new Redis({ host: '127.0.0.1', port: server.port })
      const open = (): LarderCacheStore => new LarderCacheStore({ ...server.options, tracking, errorCallback: () => undefined })
      ;[one, other] = [open(), open()]
    })
    after(async () => {
      await Promise.all([one!.close(), other!.close()])
      client.disconnect()
      await server.stop()
    })

    test('a purge of another region applies once, and a gap makes everything stale', async () => {
      const stores = [one!, other!]
      const carry = (...records: Buffer[]): Promise<unknown> => redis('APPEND', 'larder:log', Buffer.concat(records))
      const isGone = async (path: string): Promise<void> => {
        for (const store of stores) await eventually(async () => !await has(store, path), `${path} is gone`)
      }
      const staleAt = async (store: LarderCacheStore): Promise<number> => (await store.get(keyOf('/far')))?.staleAt ?? NaN
      for (const path of ['/near', '/far', '/mark']) await put(one!, path)
      for (const store of stores) assert.ok(await has(store, '/near') && await has(store, '/far') && await has(store, '/mark'))
      await carry(carried(0, 100, purgeOf('/near')))
      await isGone('/near')
      await put(one!, '/near')
      // The same record again, and a position. The purge after them shows that they have been read.
      await carry(carried(0, 100, purgeOf('/near')), carried(100, 100, 'position'), encodeLogRecord(purgeOf('/mark')))
      await isGone('/mark')
      for (const store of stores) assert.ok(await has(store, '/near') && await staleAt(store) > Date.now(), 'nothing else is purged')
      await carry(carried(200, 300, purgeOf('/near')))
      for (const store of stores) await eventually(async () => await staleAt(store) <= Date.now(), 'everything is stale, and remains')
      await carry(carried(300, 400, Buffer.from('rubbish')))
      await isGone('/far')
    })

    test('a long one is cut, and those who follow it go on', async () => {
      await put(one!, '/kept')
      await put(one!, '/purged')
      assert.ok(await has(other!, '/kept') && await has(other!, '/purged'))
      const long = 'x'.repeat(16_000)
      const lengthOfLog = async (): Promise<number> => Number(await redis('STRLEN', 'larder:log'))
      const record = encodeLogRecord(purgeOf(`/${long}`))
      await redis('APPEND', 'larder:log', Buffer.concat(Array.from({ length: Math.floor(LOG_MAX / record.length) - 40 }, () => record)))
      const before = await lengthOfLog()
      assert.ok(before > 0.9 * LOG_MAX)
      for (let at = 0; at < 80; at++) await one!.delete(keyOf(`/${at}${long}`))
      const cut = await lengthOfLog()
      assert.ok(cut < before && cut > LOG_MAX / 2, `${cut} bytes remain`)
      await one!.delete(keyOf('/purged'))
      await eventually(async () => !await has(other!, '/purged'), 'the purge is heard')
      await put(one!, '/kept')
      await eventually(() => has(other!, '/kept'), 'it is stored again')
    })

    test('a long one is read by a new process without an error', async () => {
      // Two records of this length don't fit in one read.
      const record = encodeLogRecord(Buffer.concat([purgeOf('/'), Buffer.alloc(LOG_READ_BYTES / 2)]))
      const records = Array.from({ length: Math.floor(LOG_MAX / record.length) }, () => record)
      await redis('SET', 'long:log', Buffer.concat([encodeLogHeader(newLogHeader()), ...records]))
      const errors: Error[] = []
      const late = new LarderCacheStore({ ...server.options, prefix: 'long:', tracking, errorCallback: (error) => errors.push(error) })
      assert.ok(!await has(late, '/late'))
      await put(late, '/late')
      assert.ok(await has(late, '/late'), 'the log was read to its end before')
      await late.close()
      assert.deepEqual(errors, [])
    })

    for (const [what, damage] of [
      ['lost', ['DEL', 'larder:log']],
      ['damaged', ['APPEND', 'larder:log', 'rubbish']],
      ['set back', []],
      ['set back, and as long again', []],
      ['set back to one that was lost', []],
      ['no string', []],
    ] as const) {
      test(`one that is ${what} leaves nothing in use that may have been purged`, async () => {
        await put(one!, '/a')
        assert.ok(await has(other!, '/a'))
        // One transaction does both, or another process could create a new log in between.
        if (what === 'no string') await client.multi().del('larder:log').lpush('larder:log', 'a').exec()
        else if (what.startsWith('set back')) {
          const before = await redis('GET', 'larder:log') as Buffer
          if (what.endsWith('lost')) await redis('DEL', 'larder:log')
          else for (const path of ['/b', '/c']) await one!.delete(keyOf(path))
          for (const store of [one!, other!]) await eventually(async () => await has(store, '/a') !== what.endsWith('lost'), 'it has read on')
          // A process that was disconnected meanwhile sees only the result.
          const others = ['/b', '/a'].map((path) => encodeLogRecord(purgeOf(path)))
          await redis('SET', 'larder:log', Buffer.concat(what.endsWith('again') ? [before, ...others] : [before]))
          await eventually(async () => {
            await has(other!, '/a')
            const header = await redis('GETRANGE', 'larder:log', '0', '31') as Buffer
            return header.length > 0 && !header.subarray(8, 24).equals(before.subarray(8, 24))
          }, 'it gets another id')
        } else {
          await redis(...damage as unknown as [string, ...string[]])
        }
        for (const store of [one!, other!]) await eventually(async () => !await has(store, '/a'), 'it is not used any more')
        if (what === 'no string') await redis('DEL', 'larder:log')
        await eventually(async () => {
          await one!.get(keyOf('/a'))
          await put(one!, '/a')
          return has(other!, '/a')
        }, 'what is stored from then on is used')
      })
    }

    test('after FLUSHALL nothing is there, and all goes on', async () => {
      await put(one!, '/flushed')
      assert.ok(await has(one!, '/flushed'))
      await redis('FLUSHALL')
      await eventually(async () => !await has(one!, '/flushed'), 'it is gone')
      await eventually(async () => {
        await one!.get(keyOf('/flushed'))
        await put(one!, '/flushed')
        return has(other!, '/flushed')
      }, 'it is stored again')
    })
  })
}

function subject(url: string, ...tags: string[]): Subject {
  return { target: targetOf(new URL(url).origin, new URL(url).pathname), tags }
}

/** A purged URL covers both schemes and all ports, since a purge from the internal network may not know those that clients use. */
test('a purge takes what it says, and nothing else', () => {
  const shop = subject('https://a.test:8443/img/x', 'red', 'blue')
  const CASES: readonly (readonly [Purged, PurgeMode, Verdict])[] = [
    ['everything', 'hard', 'purged'],
    [{ url: 'https://A.test:8443/img/x' }, 'hard', 'purged'],
    [{ url: 'https://a.test:8443/img/x?y' }, 'hard', 'current'],
    [{ url: 'http://a.test/%69mg/x' }, 'hard', 'purged'],
    [{ url: 'https://b.test:8443/img/x' }, 'hard', 'current'],
    [{ selection: { tags: ['red'], match: 'any', site: 'shop' } }, 'hard', 'purged'],
    [{ selection: { tags: ['red'], match: 'any', site: 'else' } }, 'hard', 'current'],
    [{ selection: { tags: ['green', 'blue'], match: 'any', host: 'a.test' } }, 'hard', 'purged'],
    [{ selection: { tags: ['green', 'blue'], match: 'all', host: 'a.test' } }, 'hard', 'current'],
    [{ selection: { tags: ['red', 'blue'], match: 'all', site: 'shop' } }, 'hard', 'purged'],
    [{ selection: { tags: [], match: 'any', host: 'a.test:8443' } }, 'hard', 'purged'],
    [{ selection: { tags: [], match: 'any', host: 'a.test:443' } }, 'hard', 'current'],
    [{ selection: { tags: [], match: 'any', host: 'a.test', scheme: 'https' } }, 'hard', 'current'],
    [{ selection: { tags: [], match: 'any', prefix: '/img/' } }, 'hard', 'purged'],
    [{ selection: { tags: [], match: 'any', prefix: '/img/x/' } }, 'hard', 'current'],
    [{ selection: { tags: ['red'], match: 'any', site: 'shop' } }, 'soft', { staleSince: 7 }],
  ]
  for (const [what, mode, expected] of CASES) {
    const index = new PurgeIndex('shop')
    index.add({ ...newPurge(what, 7), mode }, 100)
    assert.deepEqual(index.judge(shop, 50), expected, JSON.stringify(what))
    assert.equal(index.judge(shop, 100), 'current', 'asked for after it')
  }
})

test('a full index takes too much, and never too little', () => {
  const index = new PurgeIndex('shop')
  for (let at = 1; at <= 40_000; at++) index.add(newPurge({ url: `http://a.test/${at}` }, 0), at)
  assert.equal(index.judge(subject('http://a.test/1'), 0), 'purged')
  assert.equal(index.judge(subject('http://a.test/other'), 0), 'purged', 'what is older than what was forgotten')
  assert.equal(index.judge(subject('http://a.test/other'), 20_000), 'current')
  assert.equal(index.judge(subject('http://a.test/40000'), 20_000), 'purged')
  index.add(undefined, 40_001)
  assert.equal(index.judge(subject('http://a.test/other'), 40_000), 'purged', 'nobody here understands it')
})
