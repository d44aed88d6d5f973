// The Larder gateway and this package over one store: each serves responses that the other stored, and a purge through either applies to both.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer, request, type IncomingMessage, type Server as HttpServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { Redis } from 'iovalkey'
import { Agent, request as undiciRequest } from 'undici'
import { type CacheKey, larderCache, LarderCacheStore } from '../src/index.js'
import { cacheKeyOf, digestOfKey, Names, targetOf } from '../src/key.js'
import { eventually, freePort, larderBinary, type Server, startProcess, startRedis } from './servers.js'

const HOST = 'shop.test'
const run = promisify(execFile)

/** An origin that numbers its responses, and counts the requests for each path. */
class Origin {
  readonly #server: HttpServer
  readonly asked = new Map<string, number>()
  delayMs = 0

  constructor() {
    this.#server = createServer((incoming, response) => {
      const path = incoming.url ?? ''
      const count = (this.asked.get(path) ?? 0) + 1
      this.asked.set(path, count)
      const body = path.startsWith('/large') ? 'x'.repeat(200_000) + count : `${path} ${count}`
      response.writeHead(200, {
        'cache-control': 'public, max-age=60', 'cache-tags': `page, ${path.slice(1)}`, 'content-type': 'text/plain', etag: `"${count}"`, vary: 'accept-language',
      })
      setTimeout(() => response.end(incoming.method === 'HEAD' ? undefined : body), this.delayMs)
    })
  }

  async listen(): Promise<number> {
    await once(this.#server.listen(0, '127.0.0.1'), 'listening')
    return (this.#server.address() as { port: number }).port
  }

  close(): void {
    this.#server.close()
    this.#server.closeAllConnections()
  }
}

async function fetchFrom(port: number, path: string, host = HOST): Promise<{ body: string; response: IncomingMessage }> {
  const sent = request({ host: '127.0.0.1', port, path, headers: { host } }).end()
  const [response] = await once(sent, 'response') as [IncomingMessage]
  const pieces: Buffer[] = []
  for await (const piece of response) pieces.push(piece as Buffer)
  return { body: Buffer.concat(pieces).toString(), response }
}

function keyOf(path: string, host = HOST): CacheKey {
  return { origin: `http://${host}`, path, method: 'GET', headers: {} }
}

async function bodyOf(store: LarderCacheStore, path: string, host = HOST): Promise<string | undefined> {
  const result = await store.get(keyOf(path, host))
  return result && Buffer.concat(result.body as Buffer[]).toString()
}

async function put(store: LarderCacheStore, path: string, body: string, host = HOST): Promise<void> {
  const now = Date.now()
  const stream = store.createWriteStream(keyOf(path, host), {
    statusCode: 200, statusMessage: 'OK', cachedAt: now, staleAt: now + 60_000, deleteAt: now + 120_000,
    headers: { 'cache-control': 'public, max-age=60', 'cache-tags': 'page', 'content-type': 'text/plain', date: new Date(now).toUTCString() },
    cacheControlDirectives: { public: true, 'max-age': 60 },
  })
  assert.ok(stream)
  stream.end(body)
  await once(stream, 'finish')
}

describe('with the gateway', { skip: larderBinary() === undefined }, () => {
  const origin = new Origin()
  let [directory, gatewayPort, adminPort, originPort] = ['', 0, 0, 0]
  let redis: Server
  let stopGateway: () => Promise<void>
  let store: LarderCacheStore
  const purge = (...args: string[]): Promise<unknown> => run(larderBinary()!, ['purge', '--admin', `127.0.0.1:${adminPort}`, ...args])

  before(async () => {
    directory = await mkdtemp(join(tmpdir(), 'larder-gateway-'))
    redis = await startRedis()
    ;[gatewayPort, adminPort] = [await freePort(), await freePort()]
    originPort = await origin.listen()
    const file = join(directory, 'larder.toml')
    await writeFile(file, [
      `listen = ["127.0.0.1:${gatewayPort}"]`, '[admin]', `listen = "127.0.0.1:${adminPort}"`,
      '[store]', `remote = "redis://127.0.0.1:${redis.port}/0"`,
      '[[site]]', 'name = "shop"', `origin = "http://127.0.0.1:${originPort}"`, 'tags = ["cache-tags"]',
    ].join('\n'))
    stopGateway = await startProcess(larderBinary()!, ['serve', file], gatewayPort)
    store = new LarderCacheStore({ ...redis.options, site: 'shop', cacheTagsHeader: 'cache-tags' })
  })

  after(async () => {
    await store.close()
    await stopGateway()
    await redis.stop()
    origin.close()
    await rm(directory, { recursive: true })
  })

  test('the package serves what the gateway has stored', async () => {
    const { body, response } = await fetchFrom(gatewayPort, '/from-gateway')
    await eventually(async () => await bodyOf(store, '/from-gateway') === body, 'the response is in the store')
    const result = await store.get(keyOf('/from-gateway'))
    assert.ok(result)
    assert.equal(result.headers['etag'], response.headers.etag)
    assert.equal(result.etag, response.headers.etag)
    assert.deepEqual(result.vary, { 'accept-language': null })
    assert.ok(Math.abs(result.staleAt - Date.now() - 60_000) < 5000)
    assert.equal(await store.get({ ...keyOf('/from-gateway'), headers: { 'accept-language': 'de' } }), undefined)
  })

  test('the package serves large bodies of the gateway', async () => {
    const { body } = await fetchFrom(gatewayPort, '/large')
    await eventually(async () => await bodyOf(store, '/large') === body, 'the response is in the store')
  })

  test('the gateway serves what the package has stored', async () => {
    for (const [path, body] of [['/from-package', 'mine'], ['/large-from-package', 'y'.repeat(300_000)], ['/middle', 'z'.repeat(30_000)]] as const) {
      assert.equal(await bodyOf(store, path), undefined)
      await put(store, path, body)
      assert.equal((await fetchFrom(gatewayPort, path)).body, body)
      assert.equal(origin.asked.get(path), undefined)
    }
  })

  test('what rules of the gateway have keyed or changed is a miss, and the other way round', async (t) => {
    const RULES = [
      ['', true],
      ['request_fields_keyed = ["x-user"]', false],
      ['response_fields_hidden = ["x-secret"]', false],
      ['[[site.transform]]\nname = "public"\nphase = "origin_response"\ncache_control = { 200 = "public, max-age=600" }', false],
    ] as const
    const port = await freePort()
    const file = join(directory, 'rules.toml')
    const sites = RULES.map(([rule], at) => `[[site]]\nname = "site-${at}"\nhosts = ["site-${at}.test"]\norigin = "http://127.0.0.1:${originPort}"\n${rule}`)
    await writeFile(file, [`listen = ["127.0.0.1:${port}"]`, '[store.remote]', `url = "redis://127.0.0.1:${redis.port}/0"`, 'prefix = "rules:"', ...sites].join('\n'))
    t.after(await startProcess(larderBinary()!, ['serve', file], port))
    const client = new Redis(redis.options.clientOpts!)
    t.after(() => client.disconnect())
    for (const [at, [rule, isShared]] of RULES.entries()) {
      const [site, host, path] = [`site-${at}`, `site-${at}.test`, `/ruled-${at}`]
      const own = new LarderCacheStore({ ...redis.options, site, prefix: 'rules:' })
      t.after(() => own.close())
      const { body } = await fetchFrom(port, path, host)
      const record = new Names('rules:').record(digestOfKey(cacheKeyOf(site, targetOf(`http://${host}`, path), 'GET')))
      await eventually(async () => await client.exists(record) === 1, `the gateway has written ${record}`)
      assert.equal(await bodyOf(own, path, host), isShared ? body : undefined, rule)
      await put(own, `${path}-own`, 'mine', host)
      assert.equal((await fetchFrom(port, `${path}-own`, host)).body === 'mine', isShared, rule)
      // This replaces a record that was a miss for this process.
      await put(own, path, 'mine', host)
      assert.equal(await bodyOf(own, path, host), isShared ? body : 'mine', rule)
    }
  })

  test('requests through both at once are one to the origin', async () => {
    const lookup = (_host: string, _options: unknown, done: (error: null, addresses: { address: string; family: number }[]) => void): void => {
      done(null, [{ address: '127.0.0.1', family: 4 }])
    }
    const agent = new Agent({ connect: { lookup: lookup as never } })
    const dispatcher = agent.compose(larderCache({ store }))
    const host = `${HOST}:${originPort}`
    const throughPackage = async (path: string): Promise<string> => (await undiciRequest(`http://${host}${path}`, { dispatcher })).body.text()
    const throughGateway = async (path: string): Promise<string> => (await fetchFrom(gatewayPort, path, host)).body
    origin.delayMs = 300
    for (const [path, first, second] of [['/g-first', throughGateway, throughPackage], ['/p-first', throughPackage, throughGateway]] as const) {
      const leading = first(path)
      await eventually(() => origin.asked.has(path), 'the origin is asked')
      assert.deepEqual([await leading, await second(path)], [`${path} 1`, `${path} 1`])
    }
    for (const [path, first, second] of [['/g-leads', throughGateway, throughPackage], ['/p-leads', throughPackage, throughGateway]] as const) {
      const leading = first(path)
      await eventually(() => origin.asked.has(path), 'the origin is asked')
      assert.deepEqual(await Promise.all([leading, second(path)]), [`${path} 1`, `${path} 1`])
    }
    origin.delayMs = 0
    await dispatcher.close()
  })

  test('a purge through the package reaches the gateway', async () => {
    for (const purged of [() => store.delete(keyOf('/one')), () => store.deleteTags(['one']), () => store.deleteTags([['page', 'one']])]) {
      const { body } = await fetchFrom(gatewayPort, '/one')
      assert.equal((await fetchFrom(gatewayPort, '/one')).body, body)
      await purged()
      await eventually(async () => (await fetchFrom(gatewayPort, '/one')).body !== body, 'the gateway has fetched it anew')
    }
  })

  test('a purge through the gateway reaches the package', async () => {
    const url = `http://${HOST}/two`
    for (const args of [[url], ['--tag', 'page', '--site', 'shop'], ['--tag', 'page', '--tag', 'other', '--all-tags', '--site', 'shop'], ['--host', HOST], ['--everything']]) {
      const isOther = args.includes('other')
      await put(store, '/two', 'mine')
      assert.equal(await bodyOf(store, '/two'), 'mine')
      await purge(...args)
      if (isOther) assert.equal(await bodyOf(store, '/two'), 'mine')
      else await eventually(async () => await bodyOf(store, '/two') === undefined, `it is purged by ${args.join(' ')}`)
    }
  })
})
