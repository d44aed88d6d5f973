// Cache-aside over redis-server: each process has a client of its own.

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { Redis } from 'iovalkey'
import { cacheAside, type CacheAside, type CacheAsideEvent, type CacheAsideOptions } from '../src/index.js'
import { eventually, type Server, startRedis } from './servers.js'

describe('cache-aside', () => {
  let server: Server
  const clients: Redis[] = []
  const client = (): Redis => {
    const made = new Redis({ host: '127.0.0.1', port: server.port, enableOfflineQueue: true })
    clients.push(made)
    return made
  }
  const open = (more: Partial<CacheAsideOptions<number>> = {}): CacheAside<number> => cacheAside<number>(client(), { ttl: 60_000, ...more })

  before(async () => { server = await startRedis() })
  after(async () => {
    clients.forEach((made) => made.disconnect())
    await server.stop()
  })

  test('loads once for all who ask at once, in all processes', async () => {
    let loads = 0
    const load = async (): Promise<number> => {
      loads += 1
      await new Promise((resolve) => setTimeout(resolve, 100))
      return 7
    }
    const values = await Promise.all([open(), open(), open()].flatMap((aside) => Array.from({ length: 10 }, () => aside.get('once', load))))
    assert.deepEqual(new Set(values), new Set([7]))
    assert.equal(loads, 1)
  })

  test('gives a stale value while another one is loaded', async () => {
    const events: CacheAsideEvent['type'][] = []
    const aside = open({ ttl: 50, jitter: 0, staleWhileRevalidate: 60_000, onEvent: ({ type }) => events.push(type) })
    let value = 1
    const get = (): Promise<number | undefined> => aside.get('stale', async () => value)
    assert.equal(await get(), 1)
    value = 2
    const expired = Date.now() + 60
    await eventually(() => Date.now() > expired, 'it is stale')
    assert.equal(await get(), 1)
    await eventually(async () => await get() === 2, 'the new one is there')
    assert.ok(events.includes('stale'))
  })

  test('remembers that there is nothing, for as long as it is told to', async () => {
    for (const [negativeTtl, expected] of [[60_000, 1], [0, 2]] as const) {
      let loads = 0
      const aside = open({ negativeTtl, prefix: `negative-${negativeTtl}:` })
      const get = (): Promise<number | undefined> => aside.get('nothing', async () => { loads += 1; return undefined })
      assert.deepEqual([await get(), await get()], [undefined, undefined])
      assert.equal(loads, expected)
    }
  })

  test('deletes by key and by tag, also what is being loaded', async () => {
    const [aside, other] = [open({ tags: (key) => [key[0]!] }), open({ tags: (key) => [key[0]!] })]
    let value = 1
    const get = (key: string): Promise<number | undefined> => aside.get(key, async () => value)
    assert.deepEqual([await get('a1'), await get('b1')], [1, 1])
    value = 2
    await other.deleteTag('a')
    assert.deepEqual([await get('a1'), await get('b1')], [2, 1])
    await other.delete('b1')
    assert.equal(await get('b1'), 2)
    await aside.get('c1', async () => { await other.deleteTag('c'); return 1 })
    assert.equal(await get('c1'), 2)
  })

  test('an error of the load is thrown, and one of the store is not', async () => {
    await assert.rejects(open().get('throws', () => Promise.reject(new Error('mine'))), /mine/)
    const errors: Error[] = []
    const nowhere = new Redis({ host: '127.0.0.1', port: 1, lazyConnect: true, enableOfflineQueue: false, retryStrategy: () => null })
    nowhere.on('error', () => undefined)
    const aside = cacheAside<number>(nowhere, { ttl: 1000, errorCallback: (error) => errors.push(error) })
    assert.equal(await aside.get('a', async () => 1), 1)
    assert.ok(errors.length > 0)
    assert.throws(() => cacheAside(nowhere, { ttl: 0 }), TypeError)
  })
})
