// Tests of batched changes under WATCH, and of the leases that they release.

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import { Cluster, Redis } from 'iovalkey'
import type { Change } from '../src/changes.js'
import { type CacheKey, LarderCacheStore } from '../src/index.js'
import { Link } from '../src/link.js'
import { type Server, startCluster, startRedis } from './servers.js'

const append = (name: string, text: string): Change => ({
  watched: [name], reads: [['GET', name]], decide: ([found]) => [['SET', name, `${String(found ?? '')}${text}`]],
})

describe('changes', () => {
  let server: Server
  let link: Link
  let client: Redis

  before(async () => {
    server = await startRedis()
    client = new Redis({ host: '127.0.0.1', port: server.port })
    const settings = { client: async () => server.options.clientOpts!, tracking: false, timeoutMs: 2000, changes: { connectionsMax: 1, groupOf: () => undefined } }
    link = new Link(settings, { changed: () => undefined, up: () => undefined, down: () => undefined })
    await link.settled()
  })
  after(async () => {
    link.close()
    client.disconnect()
    await server.stop()
  })
  const transactions = async (): Promise<number> => Number(/cmdstat_exec:calls=(\d+)/.exec(await client.info('commandstats'))?.[1] ?? 0)

  test('those that wait are made together, and those of one name in their order', async () => {
    const before = await transactions()
    const outcomes = await Promise.all(Array.from({ length: 500 }, (_, at) => link.change(append(`n${at % 100}`, String(Math.floor(at / 100))))))
    assert.deepEqual(new Set(outcomes), new Set([true]))
    for (const name of ['n0', 'n99']) assert.equal(await client.get(name), '01234')
    assert.ok(await transactions() - before < 50)
  })

  test('one that does not hold, is refused or throws is no harm to others', async () => {
    await client.lpush('list', 'no text')
    const changedMeanwhile: Change = {
      watched: ['raced'], reads: [['GET', 'raced']],
      decide: () => {
        client.set('raced', 'another')
        return [['SET', 'raced', 'own']]
      },
    }
    const throwing: Change = { watched: ['thrown'], reads: [], decide: () => { throw new Error('mine') } }
    const others = Array.from({ length: 20 }, (_, at) => append(`o${at}`, 'x'))
    const made = [...others.slice(0, 10), changedMeanwhile, append('list', 'x'), throwing, ...others.slice(10)]
    const outcomes = await Promise.allSettled(made.map((change) => link.change(change)))
    const told = outcomes.map((outcome) => outcome.status === 'fulfilled' ? outcome.value : String(outcome.reason))
    assert.deepEqual(told.filter((_, at) => at < 10 || at > 12), others.map(() => true))
    assert.match(String(told[11]), /WRONGTYPE/)
    assert.match(String(told[12]), /mine/)
    for (const name of ['o0', 'o19']) assert.equal(await client.get(name), 'x')
  })

  test('those that can be left out are refused while too many wait', async () => {
    const outcomes = await Promise.allSettled(Array.from({ length: 2000 }, (_, at) => link.changeIfRoom(append(`r${at}`, 'x'))))
    const refused = outcomes.filter(({ status }) => status === 'rejected')
    assert.equal(refused.length, 1000)
    assert.equal(await link.changeIfRoom(append('r0', 'y')), true)
  })
})

async function leasesOn({ options }: Server): Promise<number> {
  const cluster = options.cluster && new Cluster([...options.cluster])
  const nodes = cluster ? await cluster.ping().then(() => cluster.nodes('master')) : [new Redis(options.clientOpts!)]
  const names = await Promise.all(nodes.map((node) => node.keys('larder:l:*')))
  nodes.forEach((node) => node.disconnect())
  cluster?.disconnect()
  return names.flat().length
}

for (const [name, start, count] of [['redis-server', startRedis, 2500], ['a Redis Cluster', startCluster, 1100]] as const) {
  test(`many leases are all given back on ${name}, and a process holds no more than 2000`, async (t) => {
    const server = await start()
    const errors: string[] = []
    const store = new LarderCacheStore({ ...server.options, timeout: 5000, errorCallback: ({ message }) => errors.push(message) })
    t.after(async () => {
      await store.close()
      await server.stop()
    })
    const keys = Array.from({ length: count }, (_, at): CacheKey => ({ origin: 'http://many.test', path: `/${at}`, method: 'GET', headers: {} }))
    const turns = []
    await store.get(keys[0]!)
    for (let at = 0; at < keys.length; at += 100) turns.push(...await Promise.all(keys.slice(at, at + 100).map((key) => store.takeTurn(key))))
    assert.equal(await leasesOn(server), Math.min(count, 2000))
    await Promise.all(turns.map(({ release }) => release('not-stored')))
    assert.equal(await leasesOn(server), 0)
    assert.equal(errors.join(), '')
  })
}

test('what a store holds is given back when it is closed', async (t) => {
  const server = await startRedis()
  t.after(() => server.stop())
  const store = new LarderCacheStore(server.options)
  const key = { origin: 'http://held.test', path: '/', method: 'GET', headers: {} }
  await store.get(key)
  await store.takeTurn(key)
  assert.equal(await leasesOn(server), 1)
  await store.close()
  assert.equal(await leasesOn(server), 0)
})
