// Deletions that the store has not accepted: they reject for callers that wait, look-ups never fail, and the store gets the deletion as soon as it can.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, before, describe, test } from 'node:test'
import { Redis } from 'iovalkey'
import { cacheAside, type CacheKey, LarderCacheManager, LarderCacheStore } from '../src/index.js'
import { eventually, type Server, startRedis } from './servers.js'

const key: CacheKey = { origin: 'http://deletions.test', path: '/a', method: 'GET', headers: {} }
const TIMEOUT_MS = 1000
/** Allowance for a busy machine. */
const LATE_MS = 5000

async function put(store: LarderCacheStore): Promise<void> {
  const now = Date.now()
  const stream = store.createWriteStream(key, {
    statusCode: 200, statusMessage: 'OK', headers: { 'cache-tags': 'tag' }, cacheControlDirectives: {}, cachedAt: now, staleAt: now + 600_000, deleteAt: now + 600_000,
  })
  await once(stream!.end('body'), 'finish')
}

describe('deletions', () => {
  let server: Server
  let client: Redis
  let [store, other]: LarderCacheStore[] = []
  let manager: LarderCacheManager
  let id = ''

  before(async () => {
    server = await startRedis()
    client = new Redis(server.options.clientOpts!).on('error', () => undefined)
    const options = { ...server.options, timeout: TIMEOUT_MS, cacheTagsHeader: 'cache-tags', errorCallback: () => undefined }
    ;[store, other, manager] = [new LarderCacheStore(options), new LarderCacheStore(options), new LarderCacheManager(options)]
    await put(store)
    assert.ok(await other.get(key))
    for await (const entry of store.entries()) id = entry.id
    assert.equal((await store.deleteTag('nothing has it')).isComplete, true)
  })
  after(async () => {
    await Promise.all([store!.close(), other!.close(), manager.close()])
    client.disconnect()
    await server.stop()
  })

  const all = (): readonly (readonly [string, () => Promise<unknown>])[] => [
    ['delete', () => store!.delete(key)],
    ['deleteKeys', () => store!.deleteKeys([key])],
    ['deleteTag', () => store!.deleteTag('tag')],
    ['deleteTags', () => store!.deleteTags(['tag', ['a', 'b']])],
    ['deleteIds', () => store!.deleteIds([id])],
    ['deleteKeys of the manager', () => manager.deleteKeys([key])],
    ['deleteTags of the manager', () => manager.deleteTags(['tag'])],
    ['deleteIds of the manager', () => manager.deleteIds([id])],
  ]
  const refused = async (): Promise<void> => {
    for (const [name, work] of all()) {
      const begun = performance.now()
      await assert.rejects(work(), Error, name)
      assert.ok(performance.now() - begun < TIMEOUT_MS + LATE_MS, name)
      assert.equal(await store!.get(key), undefined, `a look-up after ${name}`)
    }
  }
  const isTakenLater = (): Promise<void> => eventually(async () => await other!.get(key) === undefined, 'the others are told when the store is back')
  const isStoredAgain = async (): Promise<void> => {
    await eventually(async () => {
      await store!.get(key)
      await put(store!)
      return await other!.get(key) !== undefined
    }, 'it is stored again')
  }

  test('reject while the store has no memory for them', async () => {
    await client.config('SET', 'maxmemory-policy', 'noeviction')
    await client.config('SET', 'maxmemory', '1')
    for (const [name, work] of all().filter(([name]) => !name.startsWith('deleteIds'))) await assert.rejects(work(), /OOM|EXECABORT/, name)
    assert.equal(await store!.get(key), undefined)
    await client.config('SET', 'maxmemory', '0')
    await isTakenLater()
    await isStoredAgain()
  })

  test('reject while the store stands still', async () => {
    await server.freeze()
    await refused()
    server.thaw()
    await isTakenLater()
    await isStoredAgain()
  })

  test('reject while the store is gone, and wait for one that is back in time', async () => {
    await server.kill()
    await refused()
    await server.restart()
    await isStoredAgain()
    await client.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
    assert.ok(await store!.deleteTag('tag'))
    assert.equal(await store!.get(key), undefined)
  })

  test('that nobody waits for reject nowhere', async (t) => {
    const unhandled: unknown[] = []
    const note = (error: unknown): unknown => unhandled.push(error)
    process.on('unhandledRejection', note)
    t.after(() => process.off('unhandledRejection', note))
    const closed = new LarderCacheStore({ ...server.options, errorCallback: () => undefined })
    await closed.close()
    await assert.rejects(closed.delete(key), /closed/)
    void closed.delete(key)
    void closed.deleteTag('a')
    await new Promise((resolve) => setImmediate(resolve))
    assert.deepEqual(unhandled, [])
  })

  test('of cache-aside reject too', async () => {
    const gone = new Redis({ host: '127.0.0.1', port: 1, lazyConnect: true, enableOfflineQueue: false, retryStrategy: () => null })
    gone.on('error', () => undefined)
    const values = cacheAside<string>(gone, { ttl: 1000, timeout: TIMEOUT_MS })
    assert.equal(await values.get('a', async () => 'loaded'), 'loaded')
    await assert.rejects(values.delete('a'))
    await assert.rejects(values.deleteTag('a'))
    gone.disconnect()
  })
})
