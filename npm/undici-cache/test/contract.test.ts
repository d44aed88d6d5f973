// undici's contract for cache stores, on each server, with and without copies in this process.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, before, describe, test } from 'node:test'
import type { Writable } from 'node:stream'
import { LarderCacheStore, type CacheKey, type CacheValue, type LarderCacheStoreOptions } from '../src/index.js'
import { eventually, larderBinary, type Server, startCluster, startKv, startRedis } from './servers.js'

const ORIGIN = 'http://origin.test'

function keyOf(path: string, more: Partial<CacheKey> = {}): CacheKey {
  return { origin: ORIGIN, path, method: 'GET', headers: {}, ...more }
}

function valueOf(more: Partial<CacheValue> = {}): CacheValue {
  const now = Date.now()
  return {
    statusCode: 200, statusMessage: 'OK', headers: { 'content-type': 'text/plain', 'x-list': ['a', 'b'] }, cacheControlDirectives: {},
    cachedAt: now, staleAt: now + 10_000, deleteAt: now + 20_000, ...more,
  }
}

function write(store: LarderCacheStore, key: CacheKey, value: CacheValue, ...body: (string | Buffer)[]): Writable {
  const stream = store.createWriteStream(key, value)
  assert.ok(stream)
  for (const piece of body) stream.write(piece)
  stream.end()
  return stream
}

async function put(store: LarderCacheStore, key: CacheKey, value: CacheValue, ...body: (string | Buffer)[]): Promise<void> {
  await once(write(store, key, value, ...body), 'finish')
}

async function bodyOf(store: LarderCacheStore, key: CacheKey): Promise<string | undefined> {
  const result = await store.get(key)
  return result && Buffer.concat(result.body as Buffer[]).toString()
}

const SERVERS: readonly (readonly [string, () => Promise<Server>])[] = [
  ['redis-server', startRedis],
  ['a Redis Cluster', startCluster],
  ...larderBinary() === undefined ? [] : [['larder kv', startKv] as const],
]

for (const [name, start] of SERVERS) {
  for (const tracking of [true, false]) {
    describe(`${name}, tracking ${tracking ? 'on' : 'off'}`, () => suite(start, { tracking }))
  }
}

function suite(start: () => Promise<Server>, mode: LarderCacheStoreOptions): void {
  let server: Server
  const errors: Error[] = []
  const stores: LarderCacheStore[] = []
  const open = (more: LarderCacheStoreOptions = {}): LarderCacheStore => {
    const store = new LarderCacheStore({ ...server.options, ...mode, errorCallback: (error) => errors.push(error), ...more })
    stores.push(store)
    return store
  }
  before(async () => { server = await start() })
  after(async () => {
    await Promise.all(stores.map((store) => store.close()))
    await server.stop()
    assert.deepEqual(errors, [])
  })

  test('nothing is stored at first', async () => {
    assert.equal(await open().get(keyOf('/nothing')), undefined)
  })

  test('what was written is read, here and by another process', async () => {
    const [store, key, value] = [open(), keyOf('/a?b=c'), valueOf({ etag: '"e"' })]
    write(store, key, value, 'asd', '123')
    const result = await store.get(structuredClone(key))
    const { body, ...rest } = result!
    assert.deepEqual(rest, { ...value, vary: undefined })
    assert.equal(Buffer.concat(body as Buffer[]).toString(), 'asd123')
    assert.equal(await bodyOf(open(), key), 'asd123')
  })

  test('a newer response replaces an older one', async () => {
    const [store, other, key] = [open(), open(), keyOf('/replaced')]
    await put(store, key, valueOf(), 'old')
    assert.equal(await bodyOf(other, key), 'old')
    await put(store, key, valueOf({ statusCode: 203 }), 'new')
    assert.equal(await bodyOf(store, key), 'new')
    await eventually(async () => await bodyOf(other, key) === 'new', 'the other process has the new response')
    const ids = []
    for await (const entry of store.entries({ path: '/replaced' })) ids.push(entry.id)
    assert.equal(ids.length, 1)
  })

  test('a stale response is given until it is to be deleted', async () => {
    const [store, now] = [open(), Date.now()]
    await put(store, keyOf('/stale'), valueOf({ cachedAt: now - 9000, staleAt: now - 4000, deleteAt: now + 60_000 }), 'stale')
    assert.equal((await store.get(keyOf('/stale')))?.staleAt, now - 4000)
    const soon = Date.now() + 1000
    await put(store, keyOf('/short'), valueOf({ staleAt: soon - 100, deleteAt: soon }), 'short')
    await eventually(async () => await store.get(keyOf('/short')) === undefined, 'the response is deleted')
    assert.equal(store.createWriteStream(keyOf('/late'), valueOf({ deleteAt: now - 1 })), undefined)
  })

  test('methods are apart, HEAD is stored, and a response without a body', async () => {
    const store = open()
    await put(store, keyOf('/head', { method: 'HEAD' }), valueOf({ statusCode: 204 }))
    assert.equal(await store.get(keyOf('/head')), undefined)
    assert.deepEqual((await store.get(keyOf('/head', { method: 'HEAD' })))?.body, [])
  })

  test('variants are chosen by what they nominate', async () => {
    const store = open()
    const asked = (language?: string, more = {}): CacheKey => keyOf('/vary', { headers: { ...language === undefined ? {} : { 'accept-language': language }, ...more } })
    await put(store, asked('en'), valueOf({ vary: { 'accept-language': 'en' } }), 'english')
    await put(store, asked('de, en'), valueOf({ vary: { 'accept-language': 'de, en' } }), 'german')
    await put(store, asked(), valueOf({ vary: { 'accept-language': null } }), 'none')
    for (const reader of [store, open()]) {
      assert.equal(await bodyOf(reader, asked('en')), 'english')
      assert.equal(await bodyOf(reader, asked('de,en')), 'german')
      assert.equal(await bodyOf(reader, asked()), 'none')
      assert.equal(await bodyOf(reader, asked('fr')), undefined)
    }
    await put(store, asked('en', { x: '1' }), valueOf({ vary: { 'accept-language': 'en', x: '1' } }), 'special')
    await put(store, asked('en'), valueOf({ vary: { 'accept-language': 'en' } }), 'english again')
    assert.equal(await bodyOf(store, asked('en', { x: '1' })), 'special')
    assert.equal(await bodyOf(store, asked('en')), 'english again')
    assert.deepEqual((await store.get(asked()))?.vary, { 'accept-language': null })
  })

  test('what another Host than that of the origin got is no page of the origin', async () => {
    const store = open()
    const asked = (host: string | null): CacheKey => keyOf('/hosts', { headers: { host } as NonNullable<CacheKey['headers']> })
    const own = new URL(asked('').origin).host
    assert.equal(store.createWriteStream(asked('tenant-b.example'), valueOf()), undefined)
    await put(store, asked(own.toUpperCase()), valueOf(), 'own')
    assert.equal(await bodyOf(store, keyOf('/hosts')), 'own')
    assert.equal(await bodyOf(store, asked(own)), 'own')
    for (const other of ['tenant-b.example', `${own}:1`, '', null]) assert.equal(await bodyOf(store, asked(other)), undefined, String(other))
  })

  test('once the origin sends Vary, the page from before is not chosen', async () => {
    const [store, asked] = [open(), (x?: string): CacheKey => keyOf('/varies', { headers: x === undefined ? {} : { x } })]
    await put(store, asked('1'), valueOf(), 'for all')
    assert.equal(await bodyOf(store, asked('2')), 'for all')
    await put(store, asked('1'), valueOf({ vary: { x: '1' } }), 'for 1')
    for (const reader of [store, open()]) {
      assert.equal(await bodyOf(reader, asked('1')), 'for 1')
      assert.equal(await bodyOf(reader, asked('2')), undefined)
    }
    await put(store, asked(), valueOf(), 'newer, for all')
    assert.equal(await bodyOf(store, asked('2')), 'newer, for all')
    assert.equal(await bodyOf(store, asked('1')), 'for 1')
  })

  for (const origin of ['localhost', 'localhost:3000', 'http://localhost:3000', 'http://localhost:3000/']) {
    test(`undici's contract holds with the origin ${origin}, whether writes are awaited or not`, async () => {
      const [store, key, other] = [open(), keyOf('/?u=http://x.test/', { origin }), keyOf('/other', { origin })]
      assert.equal(await store.get(key), undefined)
      const [first, second] = [valueOf({ staleAt: Date.now() + 100 }), valueOf({ statusCode: 203, etag: '"2"' })]
      write(store, key, first, 'asd', '123')
      const { body, ...rest } = (await store.get(structuredClone(key)))!
      assert.deepEqual([rest, Buffer.concat(body as Buffer[]).toString()], [{ ...first, etag: undefined, vary: undefined }, 'asd123'])
      assert.equal(await store.get(other), undefined)
      write(store, key, second, 'new')
      assert.equal(await bodyOf(store, structuredClone(key)), 'new')
      await put(store, other, valueOf(), 'other')
      assert.equal(await bodyOf(open(), key), 'new')
      const entries = []
      for await (const entry of store.entries({ origin: origin.replace(/\/$/, '') })) entries.push(entry.path)
      assert.deepEqual(entries.sort(), ['/?u=http://x.test/', '/other'])
      const deletion = store.delete({ origin, path: key.path, method: 'GET' })
      assert.equal(await store.get(key), undefined)
      await deletion
      await store.deleteKeys([other])
      assert.equal(await store.get(other), undefined)
    })
  }

  test('responses that are written at once are put together', async () => {
    const [store, asked] = [open(), (x: number): CacheKey => keyOf('/together', { headers: { x: String(x) } })]
    const streams = Array.from({ length: 40 }, (_, at) => write(store, asked(at % 4), valueOf({ vary: { x: String(at % 4) } }), `${at}`))
    await Promise.all(streams.map((stream) => stream.writableFinished || once(stream, 'finish')))
    for (const reader of [store, open()]) {
      for (const x of [0, 1, 2, 3]) assert.equal(await bodyOf(reader, asked(x)), `${36 + x}`)
    }
  })

  test('bodies are bytes, of any size that is allowed', async () => {
    const store = open({ maxEntrySize: 4_000_000 })
    for (const [length, path] of [[4096, '/4k'], [4097, '/5k'], [65_536, '/64k'], [65_537, '/65k'], [3_333_333, '/3M']] as const) {
      const body = Buffer.from(Uint8Array.from({ length }, (_, at) => (at * 7) ^ (at >> 8)))
      await put(store, keyOf(path), valueOf(), body.subarray(0, 1000), body.subarray(1000))
      for (const reader of [store, open({ maxEntrySize: 4_000_000 })]) {
        const result = await reader.get(keyOf(path))
        assert.ok(Buffer.concat(result!.body as Buffer[]).equals(body), path)
      }
    }
    await put(store, keyOf('/large'), valueOf(), Buffer.alloc(4_000_001))
    assert.equal(await store.get(keyOf('/large')), undefined)
  })

  test('deleting a URL takes all its methods and variants, everywhere', async () => {
    const [store, other] = [open(), open()]
    const keys = [keyOf('/gone'), keyOf('/gone', { method: 'HEAD' }), keyOf('/gone', { headers: { x: '1' } })]
    for (const key of keys) await put(store, key, valueOf({ vary: { x: key.headers?.['x'] ?? null } }), key.method)
    await put(store, keyOf('/stays'), valueOf(), 'stays')
    for (const key of keys) assert.ok(await other.get(key))
    await store.delete(keyOf('/gone'))
    for (const key of keys) assert.equal(await store.get(key), undefined)
    for (const key of keys) await eventually(async () => await other.get(key) === undefined, 'it is gone elsewhere')
    assert.equal(await bodyOf(store, keyOf('/stays')), 'stays')
  })

  test('what was asked for before a deletion is not stored after it', async () => {
    const [store, key] = [open(), keyOf('/race')]
    assert.equal(await store.get(key), undefined)
    await open().delete(keyOf('/race'))
    await put(store, key, valueOf(), 'too late')
    assert.equal(await store.get(keyOf('/race')), undefined)
    assert.equal(await open().get(keyOf('/race')), undefined)
  })

  test('tags purge any of several, and all of a list', async () => {
    const [store, other] = [open({ cacheTagsHeader: 'Cache-Tags' }), open({ cacheTagsHeader: 'Cache-Tags' })]
    const tagged = { '/1': 'product:1, products', '/2': 'product:11, products', '/3': 'products, sale', '/4': '1', '/5': 'a*b' }
    for (const [path, tags] of Object.entries(tagged)) await put(store, keyOf(path), valueOf({ headers: { 'cache-tags': tags } }), path)
    const left = async (): Promise<string[]> => {
      const found = await Promise.all(Object.keys(tagged).map((path) => bodyOf(store, keyOf(path))))
      return found.filter((body) => body !== undefined)
    }
    assert.deepEqual(await store.getTags(), ['1', 'a*b', 'product:1', 'product:11', 'products', 'sale'])
    await store.deleteTags(['product:1'])
    assert.deepEqual(await left(), ['/2', '/3', '/4', '/5'])
    await store.deleteTags([['products', 'sale'], '*'])
    assert.deepEqual(await left(), ['/2', '/4', '/5'])
    await store.deleteTag(['products'])
    assert.deepEqual(await left(), ['/4', '/5'])
    await eventually(async () => await bodyOf(other, keyOf('/2')) === undefined, 'the purge is heard')
    await put(store, keyOf('/2'), valueOf({ headers: { 'cache-tags': 'products' } }), 'again')
    assert.equal(await bodyOf(store, keyOf('/2')), 'again')
  })

  test('entries are listed, read and deleted by their ids', async () => {
    const store = open({ prefix: 'listed:' })
    await put(store, keyOf('/x'), valueOf(), 'one')
    await put(store, keyOf('/y', { id: 'my-own-id' }), valueOf(), 'two')
    const entries = []
    for await (const entry of store.entries({ origin: ORIGIN })) entries.push(entry)
    assert.deepEqual(entries.map(({ path }) => path).sort(), ['/x', '/y'])
    const id = entries.find(({ path }) => path === '/x')!.id
    assert.equal(await store.getResponseById(id), 'one')
    assert.equal(await store.getResponseById('my-own-id'), 'two')
    await store.deleteIds([id, 'my-own-id', 'unknown'])
    assert.equal(await store.getResponseById(id), null)
    assert.equal(await store.get(keyOf('/y')), undefined)
  })

  test('a star in a path means itself', async () => {
    const store = open()
    await put(store, keyOf('/glob/abc'), valueOf(), 'abc')
    assert.equal(await store.get(keyOf('/glob/*')), undefined)
    await store.delete(keyOf('/glob/*'))
    assert.equal(await bodyOf(store, keyOf('/glob/abc')), 'abc')
  })

  test('private responses are not stored', () => {
    assert.equal(open().createWriteStream(keyOf('/private'), valueOf({ cacheControlDirectives: { private: true } })), undefined)
  })

  test('hits on copies are synchronous', async () => {
    const [store, key] = [open(), keyOf('/sync')]
    await put(store, key, valueOf(), 'sync')
    await store.get(key)
    assert.equal(store.get(key) instanceof Promise, mode.tracking !== true)
  })
}
