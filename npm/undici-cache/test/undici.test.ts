// larderCache keeps the behaviour of undici's cache interceptor: its keys, its guards, and the immediate end of aborted requests.

import assert from 'node:assert/strict'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { IncomingMessage } from 'node:http'
import { after, before, beforeEach, describe, test } from 'node:test'
import { Redis } from 'iovalkey'
import { Agent, cacheStores, type Dispatcher, fetch, Headers, interceptors, Pool, request, upgrade } from 'undici'
import { type CacheValue, larderCache, type LarderCacheOptions, LarderCacheStore, type LarderCacheStoreOptions } from '../src/index.js'
import { targetOf } from '../src/key.js'
import { decodeLogRecords, LOG_HEADER_BYTES } from '../src/log-bytes.js'
import { decodePurge } from '../src/purge-record.js'
import { storedOf, variantOf } from '../src/stored.js'
import { type Answer, Origin } from './origin.js'
import { eventually, type Server, startRedis } from './servers.js'

type RequestHeaders = Dispatcher.DispatchOptions['headers']

/** The values of a field, as sent over the wire. */
function received({ rawHeaders }: IncomingMessage, name: string): string[] {
  return rawHeaders.filter((_, at) => at % 2 === 1 && rawHeaders[at - 1]!.toLowerCase() === name)
}

describe('the interceptor is undici\'s', () => {
  const origin = new Origin()
  const usual = origin.answer
  let [base, paths] = ['', 0]
  let server: Server
  let redis: Redis | undefined
  const open: { store: LarderCacheStore; dispatcher: Dispatcher }[] = []
  const client = (more: LarderCacheStoreOptions = {}, options: Partial<LarderCacheOptions> = {}): { store: LarderCacheStore; dispatcher: Dispatcher } => {
    const store = new LarderCacheStore({ ...server.options, errorCallback: () => undefined, ...more })
    const dispatcher = new Agent().compose(larderCache({ store, cacheStatus: 'test', ...options }))
    open.push({ store, dispatcher })
    return { store, dispatcher }
  }
  const path = (): string => `${base}/${paths += 1}`
  const keyOf = (url: string): { origin: string; path: string; method: string } => ({ origin: base, path: url.slice(base.length), method: 'GET' })
  const isStored = (url: string, store: LarderCacheStore, headers = {}): Promise<void> => (
    eventually(async () => await store.get({ ...keyOf(url), headers }) !== undefined, 'it is stored')
  )
  const ask = async (url: string, dispatcher: Dispatcher, headers: RequestHeaders = {}): Promise<string> => (await request(url, { dispatcher, headers })).body.text()

  before(async () => {
    server = await startRedis()
    redis = new Redis(server.options.clientOpts!)
    base = await origin.listen()
  })
  beforeEach(() => {
    origin.answer = usual
    origin.count = 0
  })
  after(async () => {
    await Promise.all(open.map(async ({ store, dispatcher }) => {
      await store.close()
      await dispatcher.close()
    }))
    origin.close()
    redis?.disconnect()
    await server.stop()
  })

  test('a stored answer is that of a request with the same fields, in whatever form they come', async () => {
    const forms: (() => RequestHeaders)[] = ['alice', 'bob'].flatMap((user): (() => RequestHeaders)[] => [
      () => ({ accept: 'text/html', 'x-user': user }),
      () => ({ Accept: 'text/html', 'X-User': user }),
      () => ({ accept: ['text/html'], 'x-user': ['mallory', user] }),
      () => ['accept', 'text/html', 'x-user', user],
      () => ['accept', 'text/html', 'x-user', 'mallory', 'x-user', user],
      () => ['accept', 'text/html', 'x-user', user, 'X-User', 'mallory'],
      () => ['accept', 'text/html', 'accept', '*/*', 'x-user', user],
      () => new Map([['accept', 'text/html'], ['x-user', user]]),
      () => new Headers([['accept', 'text/html'], ['x-user', 'mallory'], ['x-user', user]]),
      () => (function* pairs(): Generator<[string, string]> {
        yield ['x-user', user]
        yield ['accept', 'text/html']
      })(),
    ])
    forms.push(() => undefined, () => ({ accept: 'text/html' }), () => ({ 'x-user': '"a,  b"' }), () => ({ 'x-user': '"a, b"' }), () => ({ 'x-user': 'alice\xa0' }))
    forms.push(() => ({ 'x-user': 5 as unknown as string }), () => ({ 'x-user': undefined }))
    const echo: Answer = (incoming, response) => {
      const seen = JSON.stringify([received(incoming, 'accept').join(', '), received(incoming, 'x-user').join(', ')])
      response.writeHead(200, { 'cache-control': 'public, max-age=60', vary: 'accept, x-user' }).end(seen)
    }
    origin.answer = echo
    const { dispatcher } = client()
    const uncached = new Agent()
    // Only interceptors accept header fields as pairs.
    const pairs = [['accept', 'text/html'], ['x-user', 'mallory'], ['x-user', 'bob']] as unknown as string[]
    const expected = await Promise.all(forms.map((form) => ask(path(), uncached, form())))
    forms.push(() => pairs)
    expected.push(await ask(path(), uncached, pairs.flat()))
    for (const [at, stored] of forms.entries()) {
      if (at % 3 !== 0) continue
      const url = path()
      await ask(url, dispatcher, stored())
      for (const [other, asked] of forms.entries()) assert.equal(await ask(url, dispatcher, asked()), expected[other], `form ${other} after ${at}`)
    }
    await uncached.close()
  })

  test('no symbol of undici\'s interceptor is lost, and the same orders are refused', () => {
    const { store } = client()
    const [own, theirs] = [larderCache({ store }), interceptors.cache()]
    assert.deepEqual(Object.getOwnPropertySymbols(own), Object.getOwnPropertySymbols(theirs))
    const isRefused = (cache: Dispatcher.DispatcherComposeInterceptor): boolean => {
      try {
        new Agent().compose(cache, interceptors.redirect({ maxRedirections: 2 }))
        return false
      } catch {
        return true
      }
    }
    assert.equal(isRefused(own), isRefused(theirs))
    new Agent().compose(interceptors.redirect({ maxRedirections: 2 }), own)
  })

  test('all arguments come to undici\'s interceptor, which is made once', () => {
    const made = interceptors.cache
    const calls: unknown[][] = []
    interceptors.cache = () => (...args: unknown[]) => {
      calls.push(args.slice(1))
      return (_opts: unknown, _handler: unknown) => true
    }
    try {
      const interceptor = larderCache({ store: client().store }) as (...args: unknown[]) => Dispatcher['dispatch']
      const dispatch = interceptor(() => true, 'http://origin.test', 'more')
      for (let at = 0; at < 3; at++) dispatch({ origin: base, path: '/', method: 'GET' }, {})
    } finally {
      interceptors.cache = made
    }
    assert.deepEqual(calls.slice(1), [['http://origin.test', 'more']], 'after that of the client')
  })

  test('an origin in the options stores nothing that undici itself would not store', async () => {
    const victim = 'http://victim.test'
    const { store } = client()
    const memory = new cacheStores.MemoryCacheStore()
    for (const cache of [larderCache({ store }), interceptors.cache({ store: memory })]) {
      const pool = new Pool(base).compose(cache)
      await pool.request({ origin: victim, path: '/page', method: 'GET' }).then(({ body }) => body.dump())
      await pool.close()
    }
    const key = { origin: victim, path: '/page', method: 'GET', headers: {} }
    assert.equal(await store.get(key) !== undefined, memory.get(key) !== undefined)
  })

  test('requests of a Pool are cached, or it says why not', async () => {
    const { store } = client()
    const [url, told] = [path(), [] as Error[]]
    process.on('warning', (warning) => told.push(warning))
    const pool = new Pool(base).compose(larderCache({ store, cacheStatus: 'test' }))
    const status = async (): Promise<string> => {
      const { headers, body } = await pool.request({ path: url.slice(base.length), method: 'GET' })
      await body.dump()
      return String(headers['cache-status'])
    }
    await status()
    await new Promise((resolve) => setImmediate(resolve))
    const hasTold = told.some((warning) => (warning as { code?: string }).code === 'LARDER_NO_ORIGIN')
    if (!hasTold) await eventually(async () => await status() === 'test; hit', 'it is cached')
    else assert.equal(await status(), 'test; fwd=bypass')
    await pool.close()
  })

  for (const bundle of [true, false]) {
    test(`an aborted request deletes nothing, ${bundle ? 'bundled' : 'plain'}`, async () => {
      const [other, { store }, url] = [client(), client(), path()]
      const dispatcher = new Agent().compose(bundle ? larderCache({ store }) : interceptors.cache({ store }))
      origin.answer = (incoming, response) => {
        response.writeHead(200, { 'cache-control': 'public, max-age=60', vary: 'x-user' })
        if (incoming.headers['x-user'] === 'slow') response.write('some')
        else response.end('page')
      }
      await ask(url, other.dispatcher, { 'x-user': 'a' })
      await isStored(url, other.store, { 'x-user': 'a' })
      for (let at = 0; at < 5; at++) {
        const aborting = new AbortController()
        const { body } = await request(url, { dispatcher, headers: { 'x-user': 'slow' }, signal: aborting.signal })
        aborting.abort()
        await assert.rejects(body.text())
      }
      // A wrong deletion would follow a moment later.
      const [first] = [origin.count]
      for (let at = 0; at < 20; at++) {
        assert.equal(await ask(url, other.dispatcher, { 'x-user': 'a' }), 'page')
        await new Promise((resolve) => setImmediate(resolve))
      }
      assert.equal(origin.count, first)
      await dispatcher.close()
    })
  }

  test('a 304 with Cache-Control takes only what it was asked for, an unsafe request all', async () => {
    const [own, other, url] = [client(), client(), path()]
    origin.answer = (incoming, response, count) => {
      const isKnown = incoming.headers['if-none-match'] === '"e"'
      const user = incoming.headers['x-user']
      const fields = { etag: '"e"', vary: 'x-user', 'cache-control': `public, max-age=${user === 'a' ? 0 : 60}` }
      response.writeHead(isKnown ? 304 : 200, fields).end(isKnown ? undefined : `page ${count}`)
    }
    const statusOf = async ({ dispatcher }: { dispatcher: Dispatcher }, user: string): Promise<string> => {
      const { headers, body } = await request(url, { dispatcher, headers: { 'x-user': user } })
      await body.dump()
      return String(headers['cache-status'])
    }
    for (const user of ['a', 'b']) {
      await statusOf(own, user)
      await isStored(url, own.store, { 'x-user': user })
      await isStored(url, other.store, { 'x-user': user })
    }
    assert.equal(await statusOf(own, 'a'), 'test; fwd=stale')
    await eventually(async () => await other.store.get({ ...keyOf(url), headers: { 'x-user': 'a' } }) === undefined, 'what was validated is gone')
    for (const one of [own, other]) assert.equal(await statusOf(one, 'b'), 'test; hit')
    await request(url, { dispatcher: own.dispatcher, method: 'POST' }).then(({ body }) => body.dump())
    await eventually(async () => await other.store.get({ ...keyOf(url), headers: { 'x-user': 'b' } }) === undefined, 'all is gone')
  })

  /** The URLs purged in the log. */
  const purged = async (): Promise<string[]> => {
    const log = await redis!.getBuffer('larder:log') ?? Buffer.alloc(0)
    return decodeLogRecords(log.subarray(LOG_HEADER_BYTES), 0).map(({ bytes }) => String((decodePurge(bytes).what as { url?: string }).url))
  }

  /** undici deletes each method of each URL separately. */
  test('an unsafe request is one purge of each URL', async (t) => {
    const { store, dispatcher } = client()
    const plain = new Agent().compose(interceptors.cache({ store }))
    t.after(() => plain.close())
    origin.answer = (_, response) => response.writeHead(201, { location: '/made', 'content-location': '/made' }).end()
    for (const by of [dispatcher, plain]) {
      const [url, before] = [path(), (await purged()).length]
      await request(url, { dispatcher: by, method: 'POST' }).then(({ body }) => body.dump())
      const last = `${base}/last`
      await store.deleteKeys([{ origin: base, path: '/last', method: 'GET' }])
      assert.deepEqual((await purged()).slice(before).sort(), [url, `${base}/made`, last].sort())
    }
  })

  test('what is not for all is not stored, whatever undici makes of it', () => {
    const { store } = client()
    const now = Date.now()
    const check = (headers: CacheValue['headers'], isForAll: boolean, more: Partial<CacheValue> = {}, requestHeaders = {}): void => {
      const value = { statusCode: 200, statusMessage: 'OK', headers, cacheControlDirectives: {}, cachedAt: now, staleAt: now + 9000, deleteAt: now + 9000, ...more }
      const stream = store.createWriteStream({ origin: base, path: '/for-all', method: 'GET', headers: requestHeaders }, value)
      stream?.destroy()
      assert.equal(stream !== undefined, isForAll, JSON.stringify([headers, more, requestHeaders]))
    }
    const controls: readonly (readonly [string | string[], boolean])[] = [
      ['max-age=60', true], ['public, max-age="60"', true], ['', true], [', ,max-age=60,', true], ['x="private"', true], ['x-private', true], ['max-age=60 nonsense', true],
      ['private="x-user"', true], ['max-age=60, private="x-user, x-other"', true], ['no-cache', true], ['no-cache="x-user"', true],
      ['private', false], ['PRIVATE', false], ['private=""', false], ['private=" "', false], ['private="', false], ['private=', false], ['private="a', false],
      ['private="a b"', false], ['private="a,"', false], ['private;', false], ['max-age=60 private', false], ['max-age=60; private', false], ['"private"', false],
      ['private =x', false], ['max-age="60, private', false], ['no-store', false], ['no-store=1', false], ['no-cache=""', false], [['max-age=60', 'private'], false],
      ['private="content-type"', false], ['private=content-type', false], ['a=", private', false],
    ]
    for (const [control, isForAll] of controls) check({ 'content-type': 'text/html', 'cache-control': control }, isForAll)
    check({ 'set-cookie': 'a=b' }, false)
    check({ 'Set-Cookie': ['a=b'] }, false)
    check({ vary: '*' }, false)
    check({ vary: 'x-user' }, false)
    check({ vary: ['accept', 'X-User'] }, false, { vary: { accept: null } })
    check({ vary: ['accept', 'X-User'] }, true, { vary: { accept: null, 'x-user': 'a' } })
    check({ vary: '__proto__' }, false, { vary: {} })
    const [authorization, seconds] = [{ authorization: 'Bearer a' }, { 'max-age': 60 }]
    check({}, false, { cacheControlDirectives: seconds }, authorization)
    check({}, true, { cacheControlDirectives: { ...seconds, public: true } }, authorization)
    check({}, true, { cacheControlDirectives: { 's-maxage': 60 } }, authorization)
  })

  test('what an older version has stored, and is not for all, is not used', () => {
    const [key, now] = [{ origin: base, path: '/', method: 'GET', headers: {} }, Date.now()]
    const body = { state: 'complete', completeBytes: 0, content: Buffer.alloc(0) } as const
    const check = (headers: CacheValue['headers'], isUsed: boolean): void => {
      const value = { statusCode: 200, statusMessage: 'OK', headers, cacheControlDirectives: {}, cachedAt: now, staleAt: now + 9000, deleteAt: now + 9000 }
      const variant = variantOf({ id: '0'.repeat(32), key, target: targetOf(base, '/'), value, body, pieces: [], tagsHeader: undefined, log: undefined, now, clockAheadMs: 0 })
      assert.equal(storedOf(variant, variant.response!, undefined, 0) !== undefined, isUsed, JSON.stringify(headers))
    }
    check({ 'cache-control': 'max-age=60' }, true)
    check({ 'cache-control': 'max-age=60, private=""' }, false)
    check({ 'cache-control': 'max-age=60', 'set-cookie': 'user=alice' }, false)
    check({ 'cache-control': 'max-age=60', vary: 'x-user' }, false)
  })

  test('a 304 to a client\'s own condition is the answer', async () => {
    origin.answer = (incoming, response) => {
      const isKnown = incoming.headers['if-none-match'] === '"e"'
      response.writeHead(isKnown ? 304 : 200, { etag: '"e"', 'cache-control': 'public, max-age=60' }).end(isKnown ? undefined : 'page')
    }
    for (const tracking of [true, false]) {
      for (const isThere of [true, false]) {
        const [{ dispatcher, store }, url] = [client({ tracking }), path()]
        if (isThere) {
          await ask(url, dispatcher)
          await isStored(url, store)
        }
        const plain = new Agent().compose(interceptors.cache({ store }))
        for (const by of [dispatcher, plain]) {
          assert.ok(!(await purged()).includes(url), 'the bundle purges nothing')
          const { statusCode, body } = await request(url, { dispatcher: by, headers: { 'if-none-match': '"e"' }, signal: AbortSignal.timeout(10_000) })
          await body.text()
          assert.ok([200, 304].includes(statusCode))
        }
        await plain.close()
        await store.close()
        // undici itself deletes all responses of a URL after a 304 with Cache-Control, and the store can't tell this from other deletions.
        const count = (await purged()).filter((one) => one === url).length
        assert.ok(isThere ? count <= 1 : count === 0, `${count} purges`)
      }
    }
  })

  /** Resolves once `count` requests are at the origin. None is answered until `release`. */
  const hold = (): { readonly arrived: (count: number) => Promise<void>; readonly release: () => void } => {
    const held: (() => void)[] = []
    origin.answer = (incoming, response, count) => void held.push(() => usual(incoming, response, count))
    return {
      arrived: (count) => eventually(() => held.length >= count, `${count} requests have arrived`),
      release: () => {
        origin.answer = usual
        held.splice(0).forEach((answer) => answer())
      },
    }
  }
  const aborts: readonly (readonly [string, (url: string, dispatcher: Dispatcher, signal: AbortSignal) => Promise<unknown>])[] = [
    ['request', (url, dispatcher, signal) => request(url, { dispatcher, signal })],
    ['fetch', (url, dispatcher, signal) => fetch(url, { dispatcher, signal })],
    ['stream', (url, dispatcher, signal) => dispatcher.stream({ origin: base, path: url.slice(base.length), method: 'GET', signal }, () => assert.fail())],
  ]
  for (const [name, askBy] of aborts) {
    test(`an abort is heard while another request is waited for, of this process or of another one: ${name}`, async () => {
      for (const tracking of [true, false]) {
        const [own, other, url] = [client({ tracking }), client({ tracking }), path()]
        // Makes both processes members of the fleet.
        await Promise.all([own, other].map(({ store }) => store.get(keyOf(path()))))
        const { arrived, release } = hold()
        const first = ask(url, own.dispatcher)
        await arrived(1)
        for (const { dispatcher } of [own, other]) {
          const aborting = new AbortController()
          const waits = askBy(url, dispatcher, aborting.signal)
          await new Promise((resolve) => setTimeout(resolve, 50))
          aborting.abort(new Error('enough'))
          await assert.rejects(waits, /enough/)
        }
        assert.equal(origin.count, 1)
        release()
        assert.match(await first, /^answer/)
        await isStored(url, own.store)
        assert.equal(await ask(url, other.dispatcher), await first)
        origin.count = 0
      }
    })
  }

  test('an abort is heard while the store is asked', async () => {
    const own = await startRedis()
    const { dispatcher, store } = client(own.options)
    await store.get(keyOf(path()))
    await own.freeze()
    for (const [name, askBy] of aborts) {
      await assert.rejects(askBy(path(), dispatcher, AbortSignal.timeout(50)), /timeout|abort/i, name)
    }
    assert.equal(origin.count, 0)
    own.thaw()
    await store.close()
    await own.stop()
  })

  test('of those who wait for a request that is aborted, one asks in its place', async () => {
    const [own, other, url] = [client(), client(), path()]
    await Promise.all([own, other].map(({ store }) => store.get(keyOf(path()))))
    const { arrived, release } = hold()
    const aborting = new AbortController()
    const first = request(url, { dispatcher: own.dispatcher, signal: aborting.signal })
    await arrived(1)
    const others = [own, own, own, other, other].map(({ dispatcher }) => ask(url, dispatcher))
    aborting.abort()
    await assert.rejects(first)
    await arrived(2)
    release()
    assert.deepEqual(new Set(await Promise.all(others)), new Set(['answer 2']))
    assert.equal(origin.count, 2)
  })

  test('an abort in the middle of a body lets the next one ask', async () => {
    const [own, url] = [client(), path()]
    origin.answer = (_incoming, response, count) => {
      response.writeHead(200, { 'cache-control': 'public, max-age=60' }).write('answer')
      if (count > 1) response.end(` ${count}`)
    }
    const aborting = new AbortController()
    const { body } = await request(url, { dispatcher: own.dispatcher, signal: aborting.signal })
    const others = [1, 2, 3].map(() => ask(url, own.dispatcher))
    aborting.abort()
    await assert.rejects(body.text())
    assert.deepEqual(new Set(await Promise.all(others)), new Set(['answer 2']))
    assert.equal(origin.count, 2)
  })

  test('requests that can\'t be cached cost no look-up and wait for nobody', async () => {
    let lookUps = 0
    const count = (): void => void (lookUps += 1)
    const [own, elsewhere] = [client(), client({}, { origins: ['http://elsewhere.test'] })]
    await Promise.all([own, elsewhere].map(({ store }) => store.get(keyOf(path()))))
    const { dispatcher } = own
    subscribe('larder:undici-cache:lookup', count)
    const check = async (name: string, send: (url: string) => Promise<Dispatcher.ResponseData>): Promise<void> => {
      const [url, { arrived, release }] = [path(), hold()]
      const both = [send(url), send(url)]
      await arrived(2)
      release()
      await Promise.all(both.map(async (sent) => (await sent).body.dump()))
      assert.equal(lookUps, 0, name)
    }
    await check('another origin', (url) => request(url, { dispatcher: elsewhere.dispatcher }))
    await check('no-store', (url) => request(url, { dispatcher, headers: { 'cache-control': 'no-store' } }))
    await check('another method', (url) => request(url, { dispatcher, method: 'HEAD' }))
    await check('content', (url) => request(url, { dispatcher, body: 'content' }))
    unsubscribe('larder:undici-cache:lookup', count)
  })

  test('upgrades wait for nobody', async () => {
    const [{ dispatcher }, url] = [client(), path()]
    let lookUps = 0
    const count = (): void => void (lookUps += 1)
    subscribe('larder:undici-cache:lookup', count)
    const both = [1, 2].map(() => upgrade(url, { dispatcher, protocol: 'chat' }))
    const sockets = await origin.upgraded(2)
    await Promise.all(both.map(async (upgraded) => (await upgraded).socket.destroy()))
    sockets.forEach((socket) => socket.destroy())
    unsubscribe('larder:undici-cache:lookup', count)
    assert.equal(lookUps, 0)
  })

  test('redirects are followed below it, and the client is told of them', async () => {
    const { store } = client()
    const dispatcher = new Agent().compose(interceptors.redirect({ maxRedirections: 2 }), larderCache({ store, cacheStatus: 'test' }))
    const [from, to] = [path(), path()]
    origin.answer = (incoming, response, count) => {
      if (incoming.url === from.slice(base.length)) response.writeHead(302, { location: to, 'cache-control': 'public, max-age=60' }).end()
      else usual(incoming, response, count)
    }
    const { context, body } = await request(from, { dispatcher })
    assert.equal(await body.text(), 'answer 2')
    assert.deepEqual((context as { history: URL[] }).history.map(String), [from, to])
    await dispatcher.close()
  })

  test('a query in the options is part of what is asked for', async () => {
    const [own, url] = [client(), path()]
    const answers = await Promise.all(Array.from({ length: 20 }, async () => (await request(url, { dispatcher: own.dispatcher, query: { a: 1 } })).body.text()))
    assert.deepEqual(new Set(answers), new Set(['answer 1']))
    assert.equal((await own.store.get({ ...keyOf(url), path: `${keyOf(url).path}?a=1` }))?.statusCode, 200)
    assert.equal(await (await request(url, { dispatcher: own.dispatcher, query: { a: 2 } })).body.text(), 'answer 2')
  })
})
