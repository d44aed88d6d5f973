// Tests of application clients: the store connects with their settings.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { after, before, describe, test } from 'node:test'
import { Redis as IoRedis, Cluster as IoRedisCluster } from 'ioredis'
import { Cluster as IoValkeyCluster, Redis as IoValkey } from 'iovalkey'
import { createClient, createCluster } from 'redis'
import { cacheAside, LarderCacheManager, LarderCacheStore, type LarderCacheStoreOptions, type RedisClientLike } from '../src/index.js'
import { eventually, type Server, startCluster, startRedis } from './servers.js'

const HOST = '127.0.0.1'
const key = { origin: 'http://client.test', path: '/', method: 'GET', headers: {} }

async function put(store: LarderCacheStore): Promise<void> {
  const now = Date.now()
  const stream = store.createWriteStream(key, { statusCode: 200, statusMessage: '', headers: {}, cachedAt: now, staleAt: now + 60_000, deleteAt: now + 60_000 })
  await once(stream!.end('a'), 'finish')
}

/** Whether copies are kept, and invalidated when another store changes them. */
async function isCoherent(options: LarderCacheStoreOptions): Promise<void> {
  const [errors, report] = [[] as Error[], (error: Error): unknown => errors.push(error)]
  const [store, other] = [1, 2].map(() => new LarderCacheStore({ timeout: 10_000, ...options, errorCallback: report }))
  await put(store!)
  await other!.get(key)
  await eventually(() => !(other!.get(key) instanceof Promise), 'there is a copy')
  await store!.delete(key)
  assert.equal(await other!.get(key), undefined)
  await Promise.all([store!.close(), other!.close()])
  assert.deepEqual(errors, [])
}

describe('a client of the application', () => {
  let server: Server
  const opened: { disconnect?(): unknown; destroy?(): unknown; isOpen?: boolean }[] = []
  const open = <T extends (typeof opened)[number]>(client: T): T => {
    opened.push(client)
    return client
  }
  const settings = (): { host: string; port: number; username: string; password: string; db: number } => ({ host: HOST, port: server.port, username: 'app', password: 'secret', db: 3 })
  before(async () => {
    server = await startRedis()
    const admin = new IoValkey({ host: HOST, port: server.port })
    await admin.call('ACL', 'SETUSER', 'app', 'on', '>secret', '~*', '&*', '+@all')
    await admin.call('ACL', 'SETUSER', 'default', 'off')
    admin.disconnect()
  })
  after(async () => {
    for (const client of opened) {
      if (client.isOpen === undefined) client.disconnect?.()
      else if (client.isOpen) client.destroy?.()
    }
    await server.stop()
  })
  const nodeRedis = () => {
    const { host, port, db, ...user } = settings()
    return createClient({ socket: { host, port }, database: db, ...user })
  }
  const withUrl = () => createClient({ url: `redis://app:secret@${HOST}:${server.port}/3` })

  const CLIENTS: readonly (readonly [string, () => RedisClientLike | (() => RedisClientLike)])[] = [
    ['ioredis', () => open(new IoRedis({ ...settings(), keyPrefix: 'mine:' }))],
    ['ioredis that has not connected', () => open(new IoRedis({ ...settings(), lazyConnect: true, stringNumbers: true, enableAutoPipelining: true }))],
    ['iovalkey', () => open(new IoValkey(settings()))],
    ['node-redis', () => open(nodeRedis())],
    ['node-redis by a URL', () => open(withUrl())],
    ['a function that makes ioredis', () => () => new IoRedis(settings())],
    ['a function that makes node-redis', () => () => nodeRedis()],
  ]
  for (const [name, make] of CLIENTS) test(`gives its settings: ${name}`, () => isCoherent({ client: make() }))

  test('gives its prefix, and its database to the events of a manager', async () => {
    const client = open(new IoRedis({ ...settings(), keyPrefix: 'own:' }))
    const [store, manager] = [new LarderCacheStore({ client }), new LarderCacheManager({ client })]
    assert.equal(store.prefix, 'own:')
    await manager.subscribe()
    const added = once(manager, 'add-entry')
    await put(store)
    assert.equal((await added)[0].keyPrefix, 'own:')
    await Promise.all([store.close(), manager.close()])
  })

  test('gives new passwords by a function, and its pauses', async () => {
    const passwords = ['wrong', 'wrong', 'secret']
    const tries: number[] = []
    const client = (): RedisClientLike => new IoRedis({
      ...settings(), lazyConnect: true, password: passwords.length > 1 ? passwords.shift()! : passwords[0]!, retryStrategy: (times) => { tries.push(times); return 10 },
    })
    const store = new LarderCacheStore({ client, errorCallback: () => undefined })
    await eventually(async () => { await put(store); return await store.get(key) !== undefined }, 'the password is right')
    assert.ok(tries.length > 0)
    await store.close()
  })

  test('serves cacheAside too', async () => {
    const redis = open(nodeRedis())
    await redis.connect()
    for (const [at, client] of [open(new IoRedis(settings())), open(new IoValkey(settings())), redis].entries()) {
      const aside = cacheAside<{ n: number }>(client, { ttl: 60_000, prefix: `aside-${at}:`, tags: () => ['t'] })
      const load = async (): Promise<{ n: number }> => ({ n: at })
      assert.deepEqual(await aside.get('k', load), { n: at })
      assert.deepEqual(await aside.get('k', () => Promise.reject(new Error('it is kept'))), { n: at })
      await aside.deleteTag('t')
      assert.deepEqual(await aside.get('k', async () => ({ n: -1 })), { n: -1 })
    }
  })

  test('is refused where its settings can\'t be read', async () => {
    const streaming = createClient({ credentialsProvider: { type: 'streaming-credentials-provider', subscribe: async () => { throw new Error() }, onReAuthenticationError: () => undefined } })
    const cluster = createCluster({ rootNodes: [{ url: `redis://${HOST}:1` }] })
    for (const [client, said] of [[{}, /opts\.client/], [{ sendCommand: async () => null }, /opts\.client/], [streaming, /credentialsProvider/], [cluster, /opts\.cluster/]] as const) {
      assert.throws(() => new LarderCacheStore({ client: client as RedisClientLike }), said)
      assert.throws(() => new LarderCacheStore({ client: () => client as RedisClientLike }), said)
    }
  })
})

describe('a cluster of the application', () => {
  let server: Server
  before(async () => { server = await startCluster() })
  after(() => server.stop())

  for (const [name, make] of [
    ['ioredis', () => new IoRedisCluster([{ host: HOST, port: server.port }])], ['iovalkey', () => new IoValkeyCluster([`redis://${HOST}:${server.port}`])],
  ] as const) {
    test(`gives its nodes: ${name}`, async () => {
      const client = make()
      await isCoherent({ client, prefix: `${name}:` })
      client.disconnect()
    })
  }
})
