// The manager on each server, including the defects of the store that this package replaces.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, before, describe, test } from 'node:test'
import { type CacheEntry, type CacheKey, LarderCacheManager, LarderCacheStore, RedisCacheManager, RedisCacheStore } from '../src/index.js'
import { eventually, larderBinary, type Server, startCluster, startKv, startRedis, startSentinel } from './servers.js'

const ORIGIN = 'https://api.test'

function keyOf(path: string, method = 'GET'): CacheKey {
  return { origin: ORIGIN, path, method, headers: {} }
}

async function put(store: LarderCacheStore, key: CacheKey, tags: string, ttlMs = 60_000, headers: Record<string, string> = { 'cache-tags': tags }): Promise<void> {
  const now = Date.now()
  const stream = store.createWriteStream(key, {
    statusCode: 200, statusMessage: 'OK', headers, cacheControlDirectives: {}, cachedAt: now, staleAt: now + ttlMs, deleteAt: now + ttlMs,
  })
  stream!.end(`body of ${key.path}`)
  await once(stream!, 'finish')
}

const SERVERS: readonly (readonly [string, () => Promise<Server>])[] = [
  ['redis-server', startRedis],
  ['a Redis Cluster', startCluster],
  ...larderBinary() === undefined ? [] : [['larder kv', startKv] as const],
]

for (const [name, start] of SERVERS) {
  describe(`the manager on ${name}`, () => {
    let server: Server
    let store: RedisCacheStore
    let manager: RedisCacheManager
    const added: CacheEntry[] = []
    const deleted: { id: string; keyPrefix: string }[] = []
    const errors: unknown[] = []

    before(async () => {
      server = await start()
      store = new RedisCacheStore({ ...server.options, cacheTagsHeader: 'Cache-Tags' })
      manager = new RedisCacheManager({ ...server.options, cacheTagsHeader: 'Cache-Tags' })
      manager.on('add-entry', (entry) => added.push(entry)).on('delete-entry', (gone) => deleted.push(gone)).on('error', (error) => errors.push(error))
      await put(store, keyOf('/before'), 'old')
      await manager.subscribe()
    })
    after(async () => {
      await store.close()
      await manager.close()
      await server.stop()
      assert.deepEqual(errors, [])
    })
    const told = async (path: string): Promise<CacheEntry> => {
      await eventually(() => added.some((entry) => entry.path === path), `${path} is told`)
      return added.find((entry) => entry.path === path)!
    }
    const gone = (id: string): Promise<void> => eventually(() => deleted.some((entry) => entry.id === id), `${id} is gone`)

    test('tells what comes and goes, by key, tag, id and time', async () => {
      for (const path of ['/key', '/tag', '/id']) await put(store, keyOf(path), `all, ${path}`)
      await put(store, keyOf('/time'), 'short', 300)
      const [byKey, byTag, byId, byTime] = [await told('/key'), await told('/tag'), await told('/id'), await told('/time')]
      await store.deleteKeys([keyOf('/key')])
      await gone(byKey.id)
      await manager.deleteTags([['all', '/tag']])
      await gone(byTag.id)
      await manager.deleteIds([byId.id])
      await gone(byId.id)
      await gone(byTime.id)
      await manager.deleteTag('old')
      await eventually(() => deleted.length === 5, 'the one from before is gone')
      for (const path of ['/key', '/tag', '/id', '/before']) {
        await eventually(async () => await store.get(keyOf(path)) === undefined, 'the store has heard of it')
      }
    })

    test('lists, finds and reads', async () => {
      await put(store, keyOf('/a'), 'x, y')
      await put(store, keyOf('/b'), 'x')
      const paths: string[] = []
      await manager.streamEntries((entry) => paths.push(entry.path))
      assert.deepEqual(paths.sort(), ['/a', '/b'])
      const [b] = await listOf(manager.entries({ path: '/b', method: 'GET', origin: ORIGIN }))
      assert.equal(await manager.getResponseById(b!.id), 'body of /b')
      assert.deepEqual((await manager.getDependentEntries(b!.id)).map(({ path }) => path), ['/a'])
      assert.deepEqual(await manager.getTags(), ['x', 'y'])
      assert.deepEqual(await manager.getTags('another:'), [])
      assert.equal(await manager.getResponseById('nothing'), null)
    })

    test('takes an empty prefix for its own', async () => {
      await put(store, keyOf('/empty'), 'z')
      const entries: CacheEntry[] = []
      await manager.streamEntries((entry) => entries.push(entry), '')
      const { id } = entries.find(({ path }) => path === '/empty')!
      assert.equal(await manager.getResponseById(id, ''), 'body of /empty')
      await manager.deleteIds([id], '')
      assert.equal(await manager.getResponseById(id, ''), null)
    })

    test('knows the tags of a store with another field, and the usual fields without one', async () => {
      const named = new LarderCacheStore({ ...server.options, prefix: 'named:', cacheTagsHeader: 'x-tags' })
      const usual = new LarderCacheStore({ ...server.options, prefix: 'usual:' })
      const plain = new LarderCacheManager(server.options)
      await put(named, keyOf('/named'), '', 60_000, { 'x-tags': 'a, b' })
      await put(usual, keyOf('/usual'), '', 60_000, { 'cache-tag': 'c', 'cache-tags': 'd', 'surrogate-key': 'e f', xkey: 'g' })
      assert.deepEqual((await listOf(plain.entries({}, 'named:'))).map(({ cacheTags }) => cacheTags), [['a', 'b']])
      assert.deepEqual((await listOf(plain.entries({}, 'usual:'))).map(({ cacheTags }) => cacheTags), [['c', 'd', 'e', 'f', 'g']])
      await plain.deleteTags(['b'], 'named:')
      await usual.deleteTag('f')
      assert.deepEqual(await listOf(plain.entries({}, '*amed:')), [])
      assert.equal(await usual.get(keyOf('/usual')), undefined)
      await Promise.all([named, usual, plain].map((one) => one.close()))
    })
  })
}

describe('what was wrong before', () => {
  let server: Server
  const open = (more = {}): LarderCacheStore => new LarderCacheStore({ ...server.options, cacheTagsHeader: 'cache-tags', ...more })

  before(async () => { server = await startRedis() })
  after(() => server.stop())

  test('a look-up among many other keys asks for its own alone', async () => {
    const [store, admin] = [open({ tracking: false }), open({ tracking: false, prefix: 'unrelated:' })]
    for (let at = 0; at < 100; at++) await put(admin, keyOf(`/${at}`), '')
    const scans = async (): Promise<number> => Number(/cmdstat_(?:scan|keys):calls=(\d+)/.exec(await info(server.port))?.[1] ?? 0)
    await put(store, keyOf('/own'), '')
    assert.ok(await store.get(keyOf('/own')))
    await store.delete(keyOf('/own'))
    await store.deleteTags(['a'])
    assert.equal(await scans(), 0)
    await Promise.all([store.close(), admin.close()])
  })

  test('following is taken up again after a lost connection', async () => {
    const [store, other] = [open({ errorCallback: () => undefined }), open({ errorCallback: () => undefined })]
    await put(store, keyOf('/again'), '')
    await store.get(keyOf('/again'))
    await command(server.port, 'CLIENT', 'KILL', 'TYPE', 'pubsub')
    await eventually(() => store.local.count === 0, 'copies are dropped')
    await eventually(async () => await store.get(keyOf('/again')) !== undefined && store.local.count === 1, 'there is a copy again')
    await other.delete(keyOf('/again'))
    await eventually(async () => await store.get(keyOf('/again')) === undefined, 'the copy is told of the deletion')
    await Promise.all([store.close(), other.close()])
  })

  test('the local copies keep to count and size', async () => {
    for (const [limits, count] of [[{ maxCount: 5 }, 5], [{ maxSize: 4000 }, 2], [{ maxSize: 0 }, 0]] as const) {
      const store = open(limits)
      for (let at = 0; at < 20; at++) {
        await put(store, keyOf(`/limit/${at}`), '')
        assert.ok(await store.get(keyOf(`/limit/${at}`)))
      }
      assert.equal(store.local.count, count, JSON.stringify(limits))
      await store.close()
    }
  })

  test('a write without a store ends, and no error is left unhandled', async (t) => {
    const [errors, unhandled]: unknown[][] = [[], []]
    const note = (error: unknown): unknown => unhandled!.push(error)
    process.on('unhandledRejection', note)
    t.after(() => process.off('unhandledRejection', note))
    const store = new LarderCacheStore({ clientOpts: { host: '127.0.0.1', port: 1 }, errorCallback: (error) => errors!.push(error) })
    await put(store, keyOf('/nowhere'), '')
    assert.equal(await store.get(keyOf('/nowhere')), undefined)
    const before = errors!.length
    // Like undici, doesn't wait for the deletion.
    void store.delete(keyOf('/nowhere'))
    await eventually(() => errors!.length > before, 'the deletion fails')
    await new Promise((resolve) => setImmediate(resolve))
    assert.deepEqual(unhandled, [])
    await store.close()
    await store.close()
  })

  test('a store that stands still costs a look-up its time limit, and soon nothing', async () => {
    const own = await startRedis()
    // Longer than any delay on a busy machine.
    const timeout = 2000
    const store = new LarderCacheStore({ ...own.options, timeout, errorCallback: () => undefined })
    await put(store, keyOf('/still'), '')
    await store.get(keyOf('/still'))
    await own.freeze()
    const timed = async (): Promise<number> => {
      const began = performance.now()
      assert.equal(await store.get(keyOf('/other')), undefined)
      return performance.now() - began
    }
    assert.ok(store.get(keyOf('/still')), 'copies are used for as long as the connection may be alive')
    assert.ok(await timed() < 2 * timeout)
    await eventually(() => store.local.count === 0, 'the connection is given up')
    assert.ok(await timed() < timeout)
    own.thaw()
    await eventually(async () => await store.get(keyOf('/still')) !== undefined, 'the store is used again')
    await store.close()
    await own.stop()
  })

  test('a deletion that the store has not heard is told when it is back', async () => {
    const own = await startRedis()
    const [store, other] = [open({ ...own.options, errorCallback: () => undefined }), open({ ...own.options, errorCallback: () => undefined })]
    await put(store, keyOf('/later'), '')
    assert.ok(await other.get(keyOf('/later')))
    await own.freeze()
    await assert.rejects(store.delete(keyOf('/later')))
    await eventually(() => other.local.count === 0, 'the connection is given up')
    own.thaw()
    await eventually(async () => await store.get(keyOf('/probe')) === undefined && await other.get(keyOf('/later')) === undefined, 'it is gone')
    await Promise.all([store.close(), other.close()])
    await own.stop()
  })

  test('a callback that throws harms nobody', async () => {
    const store = new LarderCacheStore({ clientOpts: { host: '127.0.0.1', port: 1 }, errorCallback: () => { throw new Error('mine') } })
    assert.equal(await store.get(keyOf('/nowhere')), undefined)
    await store.close()
  })

  test('options and keys of the wrong type are refused', () => {
    for (const options of [null, 'a', { maxEntrySize: 'a' }, { errorCallback: 1 }, { tracking: 1 }, { prefix: '{a}' }, { cluster: [] }]) {
      assert.throws(() => new LarderCacheStore(options as never), TypeError, JSON.stringify(options))
    }
    const store = open()
    assert.throws(() => store.get('a' as never), TypeError)
    assert.throws(() => store.createWriteStream(keyOf('/a'), null as never), TypeError)
    return store.close()
  })

  test('another database than 0 is told of, too', async () => {
    const clientOpts = { ...server.options.clientOpts, db: 3 }
    const [store, manager] = [open({ clientOpts }), new RedisCacheManager({ clientOpts })]
    await manager.subscribe()
    const added = once(manager, 'add-entry')
    await put(store, keyOf('/three'), '')
    assert.equal((await added)[0].path, '/three')
    await Promise.all([store.close(), manager.close()])
  })

  test('subscribing can be tried again after it has failed', async () => {
    await command(server.port, 'ACL', 'SETUSER', 'limited', 'on', '>secret', '~*', '&*', '+@all', '-config')
    const clientOpts = { ...server.options.clientOpts, username: 'limited', password: 'secret' }
    const manager = new RedisCacheManager({ clientOpts })
    await assert.rejects(manager.subscribe())
    await command(server.port, 'ACL', 'SETUSER', 'limited', '+config')
    await manager.subscribe()
    await manager.close()
  })
})

test('sentinels say who the master is, also after it was lost', async (t) => {
  const server = await startSentinel()
  t.after(() => server.stop())
  const store = new LarderCacheStore({ ...server.options, errorCallback: () => undefined })
  await put(store, keyOf('/watched'), '')
  assert.ok(await store.get(keyOf('/watched')))
  await server.killMaster()
  const isStored = async (): Promise<boolean> => {
    await put(store, keyOf('/after'), '')
    return await store.get(keyOf('/after')) !== undefined
  }
  await eventually(isStored, 'the new master is used', 30_000)
  await store.close()
})

async function command(port: number, ...args: string[]): Promise<string> {
  const { execFile } = await import('node:child_process')
  return new Promise((resolve, reject) => {
    execFile('redis-cli', ['-p', String(port), ...args], (error, stdout) => error ? reject(error) : resolve(stdout))
  })
}

function info(port: number): Promise<string> {
  return command(port, 'INFO', 'commandstats')
}

async function listOf<T>(values: AsyncIterable<T>): Promise<T[]> {
  const list: T[] = []
  for await (const value of values) list.push(value)
  return list
}
