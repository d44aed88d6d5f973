// undici over the store: its cache interceptor, and the collapsing of requests.

import assert from 'node:assert/strict'
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Agent, fetch, interceptors, request, type Dispatcher } from 'undici'
import { larderCache, LarderCacheStore, type LarderCacheStoreOptions } from '../src/index.js'
import { Origin } from './origin.js'
import { eventually, larderBinary, type Server, startCluster, startKv, startRedis } from './servers.js'

const SERVERS: readonly (readonly [string, () => Promise<Server>])[] = [
  ['redis-server', startRedis],
  ['a Redis Cluster', startCluster],
  ...larderBinary() === undefined ? [] : [['larder kv', startKv] as const],
]

for (const [name, start] of SERVERS) describe(`the interceptor on ${name}`, () => suite(start))

function suite(start: () => Promise<Server>): void {
  const origin = new Origin()
  let [base, paths] = ['', 0]
  let server: Server
  const open: { store: LarderCacheStore; dispatcher: Dispatcher }[] = []
  const client = (more: LarderCacheStoreOptions = {}, bundle = true): { store: LarderCacheStore; dispatcher: Dispatcher } => {
    const store = new LarderCacheStore({ ...server.options, cacheTagsHeader: 'cache-tag', errorCallback: () => undefined, ...more })
    const interceptor = bundle ? larderCache({ store, cacheStatus: 'test' }) : interceptors.cache({ store })
    const dispatcher = new Agent().compose(interceptor)
    open.push({ store, dispatcher })
    return { store, dispatcher }
  }
  const path = (): string => `${base}/${paths += 1}`
  const text = async (url: string, dispatcher: Dispatcher, headers = {}): Promise<string> => (await request(url, { dispatcher, headers })).body.text()

  before(async () => {
    server = await start()
    base = await origin.listen()
  })
  after(async () => {
    for (const { store, dispatcher } of open) {
      await store.close()
      await dispatcher.close()
    }
    origin.close()
    await server.stop()
  })

  for (const bundle of [true, false]) {
    for (const tracking of [true, false]) {
      test(`answers from the store, ${bundle ? 'bundled' : 'plain'}, tracking ${tracking}`, async () => {
        const [{ dispatcher, store }, other, url] = [client({ tracking }, bundle), client({ tracking }, bundle), path()]
        const first = await text(url, dispatcher)
        assert.equal(await text(url, dispatcher), first)
        await eventually(async () => await store.get({ origin: base, path: new URL(url).pathname, method: 'GET' }) !== undefined, 'it is stored')
        assert.equal(await text(url, other.dispatcher), first)
        await request(url, { dispatcher, method: 'POST' }).then(({ body }) => body.dump())
        await eventually(async () => await text(url, other.dispatcher) !== first, 'the unsafe request has taken it everywhere')
      })
    }
  }

  test('nobody waits for the end of a body that is not stored', async () => {
    const [{ dispatcher }, url] = [client(), path()]
    const ends: (() => void)[] = []
    const before = origin.answer
    origin.answer = (_incoming, response) => {
      response.writeHead(200, { 'cache-control': 'no-store', 'content-type': 'text/event-stream' }).write('data: 1\n\n')
      ends.push(() => response.end())
    }
    const signal = AbortSignal.timeout(3000)
    const all = await Promise.all([1, 2, 3].map(async () => request(url, { dispatcher, signal })))
    assert.equal(ends.length, 3)
    ends.forEach((end) => end())
    await Promise.all(all.map(({ body }) => body.dump()))
    origin.answer = before
  })

  test('pages that may be for one user are not given to another', async () => {
    const past = new Date(Date.now() - 10 * 24 * 3_600_000).toUTCString()
    const before = origin.answer
    const check = async (fields: Record<string, string>, isShared: boolean): Promise<void> => {
      const [alice, bob, url] = [client(), client(), path()]
      origin.answer = (incoming, response) => {
        const isKnown = incoming.headers['if-none-match'] !== undefined || incoming.headers['if-modified-since'] !== undefined
        response.writeHead(isKnown ? 304 : 200, fields).end(isKnown ? undefined : `page of ${incoming.headers.cookie ?? 'nobody'}`)
      }
      const page = await text(url, alice.dispatcher, { cookie: 'user=alice' })
      assert.equal(page, 'page of user=alice')
      // The response is written after it was delivered. Bob's request waits until then, or his own response would be stored as well.
      if (isShared) {
        await eventually(async () => await alice.store.get({ origin: base, path: new URL(url).pathname, method: 'GET' }) !== undefined, JSON.stringify(fields))
        assert.equal(await text(url, bob.dispatcher), page, JSON.stringify(fields))
      } else for (const cookie of ['user=bob', 'user=carol']) assert.equal(await text(url, bob.dispatcher, { cookie }), `page of ${cookie}`, JSON.stringify(fields))
    }
    await check({ 'last-modified': past }, false)
    await check({ etag: '"1"', 'last-modified': past }, false)
    await check({ etag: '"1"', 'cache-control': 'no-cache' }, false)
    await check({ etag: '"1"', 'cache-control': 'max-age=0' }, false)
    await check({ 'cache-control': 'max-age=60' }, true)
    await check({ 'last-modified': past, 'cache-control': 'public' }, true)
    origin.answer = before
  })

  const statusOf = async (url: string, { dispatcher }: { dispatcher: Dispatcher }, headers = {}, method: 'GET' | 'POST' = 'GET'): Promise<string> => {
    const response = await request(url, { dispatcher, headers, method, signal: AbortSignal.timeout(30_000) })
    await response.body.dump()
    return `${response.statusCode} ${String(response.headers['cache-status'])}`
  }

  test('tells in Cache-Status what happened', async () => {
    const [own, url] = [client(), path()]
    const check = async (headers: Record<string, string>, expected: string, method?: 'POST'): Promise<void> => {
      assert.equal(await statusOf(url, own, headers, method), expected, JSON.stringify(headers))
    }
    await check({ 'cache-control': 'only-if-cached' }, '504 test; detail=only-if-cached')
    await check({}, '200 test; fwd=miss')
    await check({}, '200 test; hit')
    const fetched = await fetch(url, { dispatcher: own.dispatcher })
    assert.equal(fetched.headers.get('cache-status'), 'test; hit')
    await fetched.text()
    await check({ 'cache-control': 'only-if-cached' }, '200 test; hit')
    await check({ cookie: 'a=b' }, '200 test; hit')
    await check({ 'cache-control': 'no-cache' }, '200 test; fwd=request')
    await check({ 'cache-control': 'no-store' }, '200 test; fwd=request')
    await check({ host: 'tenant-b.example' }, '200 test; fwd=bypass')
    await check({ host: 'tenant-b.example' }, '200 test; fwd=method', 'POST')
    await check({}, '200 test; hit')
    await check({}, '200 test; fwd=method', 'POST')
    const store = new LarderCacheStore({ ...server.options, errorCallback: () => undefined })
    const elsewhere = { store, dispatcher: new Agent().compose(larderCache({ store, cacheStatus: 'test', origins: ['http://elsewhere.test'] })) }
    open.push(elsewhere)
    assert.equal(await statusOf(url, elsewhere), '200 test; fwd=bypass')
  })

  test('tells in Cache-Status that a stale response was validated, or given', async () => {
    const [own, now, before] = [client(), Date.now(), origin.answer]
    origin.answer = (_incoming, response) => response.writeHead(304, { etag: '"e"' }).end()
    const check = async (directive: string, expected: string): Promise<void> => {
      const url = path()
      const stream = own.store.createWriteStream({ origin: base, path: new URL(url).pathname, method: 'GET', headers: {} }, {
        statusCode: 200, statusMessage: 'OK', headers: { etag: '"e"' }, etag: '"e"', cacheControlDirectives: { [directive]: 60 },
        cachedAt: now - 2000, staleAt: now - 1000, deleteAt: now + 60_000,
      })
      await once(stream!.end('body'), 'finish')
      assert.equal(await statusOf(url, own), expected, directive)
    }
    await check('stale-if-error', '200 test; fwd=stale')
    await check('stale-while-revalidate', '200 test; hit')
    origin.answer = before
  })

  test('a validated response is stored once, and the newer one wins', async () => {
    const [{ dispatcher, store }, url] = [client(), path()]
    origin.answer = (incoming, response, count) => {
      const isSame = incoming.headers['if-none-match'] === '"e"'
      // undici deletes the response after a 304 with Cache-Control.
      const fields = isSame ? {} : { 'cache-control': 'public, max-age=1, stale-if-error=60' }
      response.writeHead(isSame ? 304 : 200, { ...fields, etag: '"e"', 'x-count': String(count) })
      response.end(isSame ? undefined : 'body')
    }
    assert.equal(await text(url, dispatcher), 'body')
    const stale = Date.now() + 1100
    await eventually(() => Date.now() > stale, 'it is stale')
    assert.equal(await text(url, dispatcher), 'body')
    const entries = []
    for await (const entry of store.entries({ origin: base, path: new URL(url).pathname })) entries.push(entry)
    assert.equal(entries.length, 1)
    origin.answer = new Origin().answer
  })

  test('what is not stored is asked for by all, and no request fails', async () => {
    const [{ dispatcher }, url] = [client(), path()]
    origin.answer = (_incoming, response, count) => response.writeHead(200, { 'cache-control': 'no-store' }).end(String(count))
    const bodies = await Promise.all(Array.from({ length: 20 }, () => text(url, dispatcher)))
    assert.equal(new Set(bodies).size, 20)
    origin.answer = (_incoming, response) => response.destroy()
    await assert.rejects(text(path(), dispatcher))
    origin.answer = new Origin().answer
  })

  for (const tracking of [true, false]) {
    test(`40 requests at once in each of 3 processes are one to the origin, tracking ${tracking}`, async () => {
      origin.count = 0
      origin.answer = (_incoming, response, count) => {
        setTimeout(() => response.writeHead(200, { 'cache-control': 'public, max-age=60' }).end(`answer ${count}`), 200)
      }
      const url = path()
      const worker = fileURLToPath(new URL('./worker.js', import.meta.url))
      const options = JSON.stringify({ ...server.options, tracking })
      const workers = [1, 2, 3].map(() => fork(worker, [url, '40', options]))
      await Promise.all(workers.map((child) => once(child, 'message')))
      const answers = await Promise.all(workers.map(answerOf))
      assert.deepEqual(answers.flatMap(({ errors }) => errors), [])
      assert.deepEqual(new Set(answers.flatMap(({ bodies }) => bodies)), new Set(['answer 1']))
      assert.equal(answers.flatMap(({ bodies }) => bodies).length, 120)
      assert.equal(origin.count, 1)
      origin.answer = new Origin().answer
    })
  }

  for (const [interceptor, variants, urls] of [['plain', 4, 1], ['bundle', 4, 25]] as const) {
    test(`a cold herd of 3 processes ends without an error: ${interceptor}, ${urls} URLs, ${variants} variants`, async () => {
      origin.answer = ({ headers: { x } }, response) => {
        setTimeout(() => response.writeHead(200, { 'cache-control': 'public, max-age=60', vary: 'x' }).end(`for ${String(x)}`), 50)
      }
      const [url, count] = [path(), 600]
      const worker = fileURLToPath(new URL('./worker.js', import.meta.url))
      const workers = [1, 2, 3].map(() => fork(worker, [url, String(count), JSON.stringify(server.options), interceptor, String(variants), String(urls)]))
      await Promise.all(workers.map((child) => once(child, 'message')))
      const answers = await Promise.all(workers.map(answerOf))
      for (const { errors, bodies } of answers) {
        assert.deepEqual(errors, [])
        assert.deepEqual(bodies, Array.from({ length: count }, (_, at) => `for ${at % variants}`))
      }
      const { store } = client()
      for (let at = 0; at < count; at++) {
        const key = { origin: base, path: `${new URL(url).pathname}?${at % urls}`, method: 'GET', headers: { x: String(at % variants) } }
        assert.ok(await store.get(key), `${key.path} for ${key.headers.x} is stored`)
      }
      origin.answer = new Origin().answer
    })
  }

  test('no request fails while the store is killed and back, and all is coherent then', async () => {
    const own = await start()
    const [one, two] = [client(own.options), client(own.options)]
    const urls = Array.from({ length: 20 }, path)
    let [isOver, requests] = [false, 0]
    const load = async ({ dispatcher }: { dispatcher: Dispatcher }): Promise<void> => {
      while (!isOver) {
        assert.match(await text(urls[requests % urls.length]!, dispatcher), /^answer/)
        requests += 1
        // Hits are answered without a turn of the event loop.
        await new Promise((resolve) => setImmediate(resolve))
      }
    }
    const loads = [one, one, two, two].map(load)
    const after = (count: number): Promise<void> => eventually(() => requests > count, 'requests go on')
    await after(100)
    await own.kill()
    await after(requests + 200)
    await own.restart()
    await after(requests + 200)
    isOver = true
    await Promise.all(loads)
    await eventually(async () => {
      await text(urls[0]!, one.dispatcher)
      return one.store.local.count > 0
    }, 'copies are kept again')
    const key = { origin: base, path: new URL(urls[0]!).pathname, method: 'GET' }
    await eventually(async () => await text(urls[0]!, two.dispatcher) !== '' && !(two.store.get(key) instanceof Promise), 'the other one has a copy')
    await one.store.delete(key)
    await eventually(async () => await two.store.get(key) === undefined, 'it is told of the deletion')
    await own.stop()
  })
}

interface WorkerAnswer {
  readonly bodies: string[]
  readonly errors: string[]
}

async function answerOf(child: ChildProcess): Promise<WorkerAnswer> {
  child.send('go')
  const [answer] = await once(child, 'message') as [WorkerAnswer]
  await once(child, 'exit')
  return answer
}
