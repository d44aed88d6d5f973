// A test of an application may replace the clock and all timers: the store needs none of them for look-ups and writes.

import assert from 'node:assert/strict'
import { after, before, describe, mock, test } from 'node:test'
import { Agent, request } from 'undici'
import { type CacheKey, type CacheValue, larderCache, LarderCacheStore, RedisCacheStore } from '../src/index.js'
import { Origin } from './origin.js'
import { type Server, startRedis } from './servers.js'

describe('with a clock that is moved by hand', () => {
  let server: Server
  before(async () => { server = await startRedis() })
  after(() => server.stop())

  for (const Store of [LarderCacheStore, RedisCacheStore]) {
    for (const tracking of [true, false]) {
      test(`${Store.name} keeps to it, tracking ${tracking}`, async () => {
        const store = new Store({ clientOpts: server.options.clientOpts!, prefix: `${Store.name}:${tracking}:`, tracking, timeout: 10_000 })
        mock.timers.enable({ apis: ['setTimeout', 'setInterval', 'setImmediate', 'Date'], now: 0 })
        try {
          const key: CacheKey = { origin: 'localhost', path: '/', method: 'GET', headers: { x: '1' } }
          const value = (more: Partial<CacheValue> = {}): CacheValue => ({
            statusCode: 200, statusMessage: '', headers: { foo: 'bar' }, cachedAt: Date.now(), staleAt: Date.now() + 1000, deleteAt: Date.now() + 5000, ...more,
          })
          assert.equal(await store.get(key), undefined)
          store.createWriteStream(key, value({ vary: { x: '1' } }))!.end('first')
          assert.equal((await store.get(structuredClone(key)))?.cachedAt, 0)
          assert.equal(await store.get({ ...key, headers: { x: '2' } }), undefined)
          mock.timers.tick(1500)
          assert.equal((await store.get(structuredClone(key)))?.staleAt, 1000)
          mock.timers.tick(6000)
          assert.equal(await store.get(key), undefined)
          store.createWriteStream(key, value({ vary: { x: '1' }, statusCode: 203 }))!.end('second')
          assert.equal((await store.get(key))?.statusCode, 203)
          await store.delete(key)
          assert.equal(await store.get(key), undefined)
        } finally {
          mock.timers.reset()
          await store.close()
        }
      })
    }
  }

  test('a request does not wait for another one longer than its limit', async (t) => {
    const origin = new Origin()
    origin.answer = (_incoming, response, count) => {
      response.writeHead(200, { 'cache-control': 'public, max-age=60' }).write('part')
      if (count > 1) response.end()
    }
    const url = await origin.listen()
    const store = new LarderCacheStore({ ...server.options })
    const agent = new Agent()
    const dispatcher = agent.compose(larderCache({ store }))
    t.after(async () => {
      mock.timers.reset()
      await store.close()
      await agent.destroy()
      origin.close()
    })
    mock.timers.enable({ apis: ['setTimeout', 'setInterval', 'setImmediate'] })
    const first = await request(url, { dispatcher })
    const second = await request(url, { dispatcher })
    assert.equal(await second.body.text(), 'part')
    first.body.on('error', () => undefined).destroy()
  })
})
