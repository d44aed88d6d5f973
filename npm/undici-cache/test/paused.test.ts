// A process that is suspended for longer than the timeout: an answer that arrived meanwhile counts, and the store isn't blamed.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { type AddressInfo, createConnection, createServer } from 'node:net'
import { after, before, describe, mock, test, type TestContext } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'
import { Redis } from 'iovalkey'
import { cacheAside, type CacheAsideEvent, type CacheKey, LarderCacheStore } from '../src/index.js'
import { Membership } from '../src/membership.js'
import type { SharedStore } from '../src/shared-store.js'
import { eventually, type Server, startRedis } from './servers.js'

const TIMEOUT_MS = 1000
const KEY: CacheKey = { origin: 'http://paused.test', path: '/', method: 'GET', headers: {} }

/** Blocks the process after pending commands have been sent, so that the store answers them meanwhile. */
async function standStill(): Promise<void> {
  await turn()
  const end = performance.now() + 2 * TIMEOUT_MS
  while (performance.now() < end);
}

async function put(store: LarderCacheStore): Promise<void> {
  const now = Date.now()
  const value = { statusCode: 200, statusMessage: '', headers: {}, cacheControlDirectives: {}, cachedAt: now, staleAt: now + 60_000, deleteAt: now + 60_000 }
  await once(store.createWriteStream(KEY, value)!.end('body'), 'finish')
}

describe('a process that stands still', () => {
  let server: Server
  before(async () => { server = await startRedis() })
  after(() => server.stop())

  for (const tracking of [true, false]) {
    test(`finds what it has asked for, tracking ${tracking}`, async (t) => {
      const errors: Error[] = []
      const open = (): LarderCacheStore => {
        const store = new LarderCacheStore({ ...server.options, prefix: `${tracking}:`, timeout: TIMEOUT_MS, tracking, errorCallback: (error) => errors.push(error) })
        t.after(() => store.close())
        return store
      }
      const [writer, reader] = [open(), open()]
      await reader.get({ ...KEY, path: '/other' })
      await put(writer)
      await eventually(async () => await writer.get(KEY) !== undefined, 'it is written')
      const found = reader.get(KEY)
      await standStill()
      assert.notEqual(await found, undefined)
      assert.deepEqual(errors, [])
    })
  }

  /** A server whose answers can be held back on the way. */
  async function delayed(t: TestContext): Promise<{ port: number; hold: () => void; holds: () => boolean; release: () => void }> {
    let isHeld = false
    const held: (() => void)[] = []
    const proxy = createServer((client) => {
      const upstream = createConnection(server.port, '127.0.0.1').on('data', (data) => {
        if (isHeld) held.push(() => client.write(data))
        else client.write(data)
      })
      client.pipe(upstream).on('error', () => undefined)
      client.on('error', () => undefined).on('close', () => upstream.destroy())
    }).listen(0, '127.0.0.1')
    await once(proxy, 'listening')
    t.after(() => proxy.close())
    const release = (): void => {
      isHeld = false
      held.splice(0).forEach((send) => send())
    }
    return { port: (proxy.address() as AddressInfo).port, hold: () => { isHeld = true }, holds: () => held.length > 0, release }
  }

  test('a look-up that begins after a deletion does not join one that began before', async (t) => {
    const { port, hold, holds, release } = await delayed(t)
    const open = (at: number, tracking: boolean): LarderCacheStore => {
      const store = new LarderCacheStore({ clientOpts: { host: '127.0.0.1', port: at }, prefix: 'join:', timeout: 10_000, tracking })
      t.after(() => store.close())
      return store
    }
    const [writer, reader] = [open(server.port, true), open(port, false)]
    await put(writer)
    await eventually(async () => await reader.get(KEY) !== undefined, 'it is written')
    hold()
    const before = [reader.get(KEY), reader.get(KEY)]
    await eventually(holds, 'it is answered')
    await writer.delete(KEY)
    const after = reader.get(KEY)
    await turn()
    release()
    assert.ok((await Promise.all(before)).every((found) => found !== undefined))
    assert.equal(await after, undefined)
  })

  test('has no store that is away', async (t) => {
    const client = new Redis(server.options.clientOpts!)
    t.after(() => client.disconnect())
    const events: CacheAsideEvent['type'][] = []
    const aside = cacheAside<number>(client, { ttl: 60_000, timeout: TIMEOUT_MS, onEvent: ({ type }) => events.push(type) })
    assert.equal(await aside.get('key', async () => 1), 1)
    const found = aside.get('key', async () => 2)
    await standStill()
    assert.deepEqual([await found, await aside.get('key', async () => 3)], [1, 1])
    assert.deepEqual(events, ['miss', 'load', 'hit', 'hit'])
  })
})

/** A log read before the suspension doesn't show purges during it. */
test('nobody waits for a process by what it has read before it stood still', async (t) => {
  t.after(() => mock.timers.reset())
  mock.timers.enable({ apis: ['Date'], now: 1_000_000 })
  let isStill = false
  const said: unknown[] = []
  const shared = {
    settled: () => Promise.resolve(),
    log: {
      isReachable: true, cursor: { id: '00'.repeat(16), offset: 0 }, suspect: () => undefined, readOn: () => Promise.resolve(),
      look: async () => { if (isStill) mock.timers.setTime(Date.now() + 60_000) },
    },
    fleet: { enlist: () => Promise.resolve(), lists: async () => true, leave: () => Promise.resolve(), say: async (member: unknown) => void said.push(member) },
  } as unknown as SharedStore
  const member = new Membership(shared, 'one', (error) => assert.ifError(error))
  member.connected()
  await member.settled()
  assert.ok(member.isWaitedFor(Date.now()))
  isStill = true
  const before = said.length
  member.connected()
  await eventually(() => said.length > before, 'it has told of itself')
  assert.ok(!member.isWaitedFor(Date.now()))
  await member.leave()
})
