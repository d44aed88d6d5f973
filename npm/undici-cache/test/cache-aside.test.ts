// Tests of cache-aside over redis-server and larder kv, with a separate client for each process.

import assert from 'node:assert/strict'
import { after, before, describe, test, type TestContext } from 'node:test'
import { Cluster, Redis } from 'iovalkey'
import { cacheAside, type CacheAside, type CacheAsideEvent, type CacheAsideOptions } from '../src/index.js'
import { eventually, larderBinary, type Server, startCluster, startKv, startRedis } from './servers.js'

const SERVERS = [
  ['redis-server', startRedis] as const,
  ...larderBinary() === undefined ? [] : [['larder kv', startKv] as const],
]

/** A load that lasts until the test supplies its value. */
class HeldLoad {
  #begin!: () => void
  readonly begun = new Promise<void>((resolve) => { this.#begin = resolve })
  end!: (value: number) => void
  readonly #value = new Promise<number>((resolve) => { this.end = resolve })

  readonly load = (): Promise<number> => {
    this.#begin()
    return this.#value
  }
}

for (const [what, start] of SERVERS) describe(`cache-aside on ${what}`, () => {
  let server: Server
  const clients: Redis[] = []
  const client = (): Redis => {
    const made = new Redis({ host: '127.0.0.1', port: server.port, enableOfflineQueue: true })
    clients.push(made)
    return made
  }
  const open = (more: Partial<CacheAsideOptions<number>> = {}): CacheAside<number> => cacheAside<number>(client(), { ttl: 60_000, ...more })

  before(async () => { server = await start() })
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

  for (const by of ['delete', 'deleteTag'] as const) {
    for (const from of ['the process that loads', 'another process'] as const) {
      test(`${by} during a load, from ${from}`, async () => {
        const key = `${by} from ${from}`
        const [loading, third] = [open({ tags: () => [key] }), open({ tags: () => [key] })]
        const deleting = from === 'another process' ? open({ tags: () => [key] }) : loading
        const held = new HeldLoad()
        const old = loading.get(key, held.load)
        await held.begun
        await deleting[by](key)
        const after = [loading, deleting, third].map((aside) => aside.get(key, async () => 2))
        held.end(1)
        assert.deepEqual(await Promise.all([old, ...after]), [1, 2, 2, 2])
        const never = (): Promise<number> => Promise.reject(new Error('it is kept'))
        assert.deepEqual(await Promise.all([loading, deleting, third].map((aside) => aside.get(key, never))), [2, 2, 2])
      })
    }
  }

  test('after delete, nobody waits for a load that began before', async () => {
    const [loading, other] = [open(), open()]
    const held = new HeldLoad()
    const old = loading.get('waits', held.load)
    await held.begun
    await loading.delete('waits')
    assert.equal(await loading.get('waits', async () => 2), 2)
    await other.delete('waits')
    assert.equal(await other.get('waits', async () => 3), 3)
    held.end(1)
    assert.equal(await old, 1)
    assert.equal(await loading.get('waits', async () => 4), 3)
  })

  test('a deletion holds when the store evicts what it knows of it', async () => {
    const store = client()
    const aside = open({ prefix: 'evicted:', tags: () => ['all'] })
    assert.equal(await aside.get('a', async () => 1), 1)
    await aside.deleteTag('all')
    assert.equal(await store.unlink('evicted:t:all'), 1)
    assert.equal(await aside.get('a', async () => 2), 2)
    // The version was evicted rather than deleted, so the value is reloaded and kept.
    assert.equal(await store.unlink('evicted:t:all'), 1)
    assert.deepEqual([await aside.get('a', async () => 3), await aside.get('a', async () => 4)], [3, 3])
    const bytes = await store.getBuffer('evicted:v:a')
    await aside.delete('a')
    await store.set('evicted:v:a', bytes!)
    assert.equal(await aside.get('a', async () => 5), 5)
  })

  test('deleteTag during a load holds when the store evicts it before the load ends', async () => {
    const store = client()
    const [loading, other] = [open({ prefix: 'gone:', tags: () => ['all'] }), open({ prefix: 'gone:', tags: () => ['all'] })]
    for (const isDeleted of [true, false]) {
      for (const isMadeByOther of [true, false]) {
        const key = `${isDeleted} ${isMadeByOther}`
        const held = new HeldLoad()
        const old = loading.get(key, held.load)
        await held.begun
        if (isDeleted) await other.deleteTag('all')
        await store.unlink('gone:t:all')
        if (isMadeByOther) await other.get(`beside ${key}`, async () => 0)
        held.end(1)
        assert.equal(await old, 1)
        assert.equal(await other.get(key, async () => 2), isDeleted ? 2 : 1, key)
      }
    }
  })

  test('versions stay as long as values', async () => {
    const store = client()
    const aside = open({ prefix: 'stays:', ttl: 60_000, staleWhileRevalidate: 60_000, jitter: 0, tags: () => ['all'] })
    for (const value of [1, 2]) {
      await aside.get('a', async () => value)
      const [value_, key, tag] = await Promise.all(['v:a', 'd:a', 't:all'].map((name) => store.pttl(`stays:${name}`)))
      assert.ok(value_! > 60_000 && key! >= value_! && tag! >= value_!, `${value_} ${key} ${tag}`)
      await store.pexpire('stays:d:a', 1000)
      await store.pexpire('stays:t:all', 1000)
      await store.unlink('stays:v:a')
    }
  })

  test('a hit takes one round trip, and one more with tags', async () => {
    for (const [tags, trips] of [[[], 1], [['a', 'b', 'c'], 2]] as const) {
      const own = client()
      const aside = cacheAside<number>(own, { ttl: 60_000, prefix: `trips-${trips}:`, tags: () => tags })
      await aside.get('a', async () => 1)
      const send = own.sendCommand.bind(own)
      let [sent, unanswered, seen] = [0, 0, 0]
      own.sendCommand = (command, stream) => {
        // A command sent while none is pending begins a round trip.
        if (unanswered === 0) sent += 1
        unanswered += 1
        seen += 1
        command.promise.finally(() => { unanswered -= 1 }).catch(() => undefined)
        return send(command, stream)
      }
      assert.equal(await aside.get('a', async () => 2), 1)
      assert.equal(sent, trips)
      assert.equal(seen, 2 + tags.length)
    }
  })

  for (const [what, stop, resume] of [
    ['frozen', (server: Server) => server.freeze(), (server: Server) => server.thaw()],
    ['killed', (server: Server) => server.kill(), (server: Server) => server.restart()],
  ] as const) {
    test(`one look-up waits for a store that is ${what}, the others load at once, and the store is used again when it is back`, async () => {
      const own = await start()
      const redis = new Redis({ host: '127.0.0.1', port: own.port })
      redis.on('error', () => undefined)
      try {
        // The timeout is long enough for all loads together on a busy machine.
        const timeout = 2000
        const events: CacheAsideEvent[] = []
        const aside = cacheAside<number>(redis, { ttl: 60_000, timeout, onEvent: (event) => events.push(event) })
        assert.equal(await aside.get('before', async () => 1), 1)
        await stop(own)
        const began = performance.now()
        assert.equal(await aside.get('before', async () => 2), 2)
        assert.ok(performance.now() - began < 2 * timeout, 'it waits once')
        const then = performance.now()
        const keys = Array.from({ length: 50 }, (_, at) => `key ${at}`)
        for (const [at, key] of keys.entries()) assert.equal(await aside.get(key, async () => at), at)
        assert.ok(performance.now() - then < timeout, 'nobody waits')
        assert.deepEqual(events.filter(({ type }) => type === 'away').map(({ key }) => key), keys)
        await assert.rejects(aside.delete('before'))
        await resume(own)
        const get = async (): Promise<string | undefined> => {
          const from = events.length
          await aside.get('after', async () => 3)
          return events[from]?.type
        }
        await eventually(async () => await get() === 'hit', 'the store is used')
        assert.equal(await aside.get('after', async () => 4), 3)
      } finally {
        redis.disconnect()
        own.thaw()
        await own.stop()
      }
    })
  }

  describe('when the store stands still', () => {
    // Long enough for every answer on a busy machine.
    const TIMEOUT_MS = 2000
    const opened = (own: Server, more: Partial<CacheAsideOptions<number>> = {}): CacheAside<number> => {
      const redis = new Redis({ host: '127.0.0.1', port: own.port })
      clients.push(redis.on('error', () => undefined))
      return cacheAside<number>(redis, { ttl: 60_000, timeout: TIMEOUT_MS, ...more })
    }
    const withServer = (name: string, body: (own: Server, t: TestContext) => Promise<void>): void => void test(name, async (t) => {
      const own = await start()
      try {
        await body(own, t)
      } finally {
        own.thaw()
        await own.stop()
      }
    })
    const findAway = async (own: Server, aside: CacheAside<number>): Promise<void> => {
      await own.freeze()
      assert.equal(await aside.get('before', async () => 0), 0)
    }

    withServer('nobody waits afterwards for a load that has ended meanwhile', async (own) => {
      const events: CacheAsideEvent['type'][] = []
      const aside = opened(own, { loadTimeout: 60_000, onEvent: ({ type }) => events.push(type) })
      const held = new HeldLoad()
      const old = aside.get('locked', held.load)
      await held.begun
      await own.freeze()
      held.end(1)
      assert.equal(await old, 1)
      own.thaw()
      const get = async (): Promise<string | undefined> => {
        const from = events.length
        await aside.get('locked', async () => 2)
        return events[from]
      }
      await eventually(async () => await get() === 'hit', 'the value is kept')
      assert.ok(!events.includes('wait'), events.join(' '))
    })

    withServer('a deletion by tag takes no other clock than that of the store', async (own, t) => {
      const [loading, deleting] = [opened(own, { tags: () => ['all'] }), opened(own, { tags: () => ['all'] })]
      await findAway(own, deleting)
      own.thaw()
      const held = new HeldLoad()
      const old = loading.get('clock', held.load)
      await held.begun
      const now = Date.now.bind(Date)
      const { mock } = t.mock.method(Date, 'now', () => now() - 3_600_000)
      await deleting.deleteTag('all')
      mock.restore()
      held.end(1)
      assert.equal(await old, 1)
      assert.equal(await loading.get('clock', async () => 2), 2)
    })

    withServer('who has joined a load after a deletion is not given what can not be verified', async (own) => {
      const events: CacheAsideEvent['type'][] = []
      const [loading, other] = [opened(own, { onEvent: ({ type }) => events.push(type) }), opened(own)]
      const held = new HeldLoad()
      const old = loading.get('joined', held.load)
      await held.begun
      await other.delete('joined')
      const joined = loading.get('joined', async () => 2)
      await eventually(() => events.filter((type) => type === 'miss').length === 2, 'it has joined')
      await own.freeze()
      held.end(1)
      assert.deepEqual(await Promise.all([old, joined]), [1, 2])
    })

    withServer('a deletion that is taken holds for loads that began before', async (own) => {
      const events: CacheAsideEvent[] = []
      const aside = opened(own, { tags: () => ['all'], onEvent: (event) => events.push(event) })
      await findAway(own, aside)
      const held = new HeldLoad()
      const old = aside.get('unverified', held.load)
      await held.begun
      own.thaw()
      await aside.deleteTag('all')
      const after = aside.get('unverified', async () => 2)
      const hasJoined = (): boolean => events.filter(({ type, key }) => key === 'unverified' && (type === 'miss' || type === 'away')).length === 2
      await eventually(hasJoined, 'it has joined')
      held.end(1)
      assert.deepEqual(await Promise.all([old, after]), [1, 2])
    })
  })

  test('a value without a serialized form is no outage of the store', async () => {
    const events: CacheAsideEvent['type'][] = []
    const aside = open({
      prefix: 'errors:',
      serialize: (value) => { if (value === 1) throw new Error('mine'); return String(value) },
      onEvent: ({ type }) => events.push(type),
    })
    assert.equal(await aside.get('a', async () => 1), 1)
    assert.equal(await aside.get('a', async () => 2), 2)
    assert.equal(await aside.get('a', async () => 3), 2)
    assert.ok(events.includes('error') && !events.includes('away'), events.join(' '))
  })

  test('callers that wait for one load do not share an object', async () => {
    const aside = cacheAside<{ list: number[] }>(client(), { ttl: 60_000, prefix: 'own-object:' })
    const load = async (): Promise<{ list: number[] }> => ({ list: [1] })
    const values = await Promise.all(Array.from({ length: 5 }, () => aside.get('one', load)))
    values.forEach((value, at) => value!.list.push(at + 2))
    assert.deepEqual(values, [2, 3, 4, 5, 6].map((more) => ({ list: [1, more] })))
    assert.deepEqual(await aside.get('one', load), { list: [1] })
  })

  test('values have a time and tags of their own', async () => {
    const [aside, count] = [open({ jitter: 0, prefix: 'per-call:', tags: () => ['all'] }), { loads: 0 }]
    const load = async (): Promise<number> => count.loads += 1
    assert.equal(await aside.get('short', load, { ttl: 30 }), 1)
    await eventually(async () => await aside.get('short', load, { ttl: 60_000, tags: ['some'] }) === 2, 'it is loaded again')
    assert.equal(await aside.get('short', load), 2)
    await aside.deleteTag('some')
    assert.equal(await aside.get('short', load, { tags: ['some'] }), 3)
    await aside.deleteTag('all')
    assert.equal(await aside.get('short', load), 4)
    await assert.rejects(aside.get('short', load, { ttl: 0 }), TypeError)
  })

  test('set keeps a value, also against a load that began before', async () => {
    const [aside, other, held] = [open({ prefix: 'set:' }), open({ prefix: 'set:' }), new HeldLoad()]
    const loading = other.get('one', held.load)
    await held.begun
    await aside.set('one', 7, { tags: ['t'] })
    assert.equal(await open({ prefix: 'set:' }).get('one', async () => 8), 7)
    held.end(1)
    assert.equal(await loading, 1)
    assert.equal(await other.get('one', async () => 9), 7)
    await aside.set('one', 10)
    assert.equal(await other.get('one', async () => 9), 10)
    await aside.set('tagged', 11, { tags: ['t'] })
    await other.deleteTag('t')
    assert.equal(await aside.get('tagged', async () => 12), 12)
  })

  test('has tells what get would give without a load', async () => {
    const aside = open({ prefix: 'has:', negativeTtl: 60_000 })
    assert.equal(await aside.has('one'), false)
    await aside.set('one', 1)
    assert.equal(await aside.has('one'), true)
    await aside.delete('one')
    assert.equal(await aside.has('one'), false)
    await aside.set('one', undefined)
    assert.equal(await aside.has('one'), false)
    assert.equal(await aside.get('one', async () => 1), undefined)
  })

  test('getMany loads what is missing, together', async () => {
    const [aside, calls] = [open({ prefix: 'many:' }), [] as (readonly string[])[]]
    await aside.set('b', 2)
    const load = async (keys: readonly string[]): Promise<Map<string, number>> => {
      calls.push(keys)
      return new Map(keys.filter((key) => key !== 'none').map((key) => [key, key.charCodeAt(0) - 96]))
    }
    assert.deepEqual(await aside.getMany(['a', 'b', 'c', 'none', 'a'], load), new Map([['a', 1], ['b', 2], ['c', 3]]))
    assert.deepEqual(calls.flat().sort(), ['a', 'c', 'none'])
    assert.ok(calls.length < 3, `${calls.length} loads`)
    assert.deepEqual(await aside.getMany(['a', 'b', 'c'], () => Promise.reject(new Error('nothing is missing'))), new Map([['a', 1], ['b', 2], ['c', 3]]))
    const failing = (): Promise<never> => Promise.reject(new Error('no database'))
    await assert.rejects(aside.getMany(['x', 'y'], failing), /no database/)
  })

  test('two processes that want the same keys in other orders do not wait for each other', async () => {
    const [one, two, keys] = [open({ prefix: 'orders:' }), open({ prefix: 'orders:' }), Array.from({ length: 20 }, (_, at) => `k${at}`)]
    const load = async (wanted: readonly string[]): Promise<Map<string, number>> => new Map(wanted.map((key) => [key, Number(key.slice(1))]))
    const begun = performance.now()
    const found = await Promise.all([one.getMany(keys, load), two.getMany([...keys].reverse(), load)])
    for (const values of found) assert.deepEqual(keys.map((key) => values.get(key)), keys.map((_, at) => at))
    assert.ok(performance.now() - begun < 4000, 'less than loadTimeout')
  })

  test('wrap keeps the results of a function', async () => {
    const [aside, calls] = [open({ prefix: 'wrap:' }), [] as string[]]
    const sum = async (one: number, two: number): Promise<number> => {
      calls.push(`${one}+${two}`)
      return one + two
    }
    const kept = aside.wrap(sum)
    assert.deepEqual([await kept(1, 2), await kept(1, 2), await kept(2, 1)], [3, 3, 3])
    assert.deepEqual(calls, ['1+2', '2+1'])
    const sorted = aside.wrap(sum, { key: (...args) => [...args].sort().join('+'), ttl: 1000, tags: ['sums'] })
    assert.deepEqual([await sorted(3, 4), await sorted(4, 3)], [7, 7])
    assert.equal(calls.length, 3)
    await aside.deleteTag('sums')
    await sorted(4, 3)
    assert.equal(calls.length, 4)
    assert.throws(() => aside.wrap(async () => 1), TypeError)
  })

  test('an error is remembered for as long as it is told to', async () => {
    const [events, aside] = [[] as string[], open({ prefix: 'errors:', errorTtl: 200, onEvent: ({ type }) => events.push(type) })]
    let loads = 0
    const load = async (): Promise<number> => {
      loads += 1
      if (loads === 1) throw new Error('no database')
      return loads
    }
    await assert.rejects(aside.get('one', load), /no database/)
    await assert.rejects(aside.get('one', load), /no database/)
    assert.deepEqual([loads, events.includes('failed')], [1, true])
    await eventually(async () => await aside.get('one', load).catch(() => undefined) === 2, 'it is loaded again')
    loads = 0
    await assert.rejects(aside.get('two', load), /no database/)
    await aside.delete('two')
    assert.equal(await aside.get('two', load), 2)
  })

  test('memory gives values without a question, and its own deletions take effect at once', async () => {
    const events: string[] = []
    const aside = cacheAside<{ n: number }>(client(), {
      ttl: 60_000, prefix: 'memory:', memory: { ttl: 60_000, maxCount: 2 }, tags: (key) => [key], onEvent: ({ type }) => events.push(type),
    })
    let n = 0
    const get = (key: string): Promise<{ n: number } | undefined> => aside.get(key, async () => ({ n: n += 1 }))
    await get('a')
    const [one, two] = [await get('a'), await get('a')]
    assert.deepEqual([one, two, one === two, events.slice(-2)], [{ n: 1 }, { n: 1 }, false, ['memory', 'memory']])
    await aside.delete('a')
    assert.deepEqual(await get('a'), { n: 2 })
    await aside.deleteTag('a')
    assert.deepEqual(await get('a'), { n: 3 })
    await aside.set('a', { n: -1 })
    assert.deepEqual([await get('a'), events.at(-1)], [{ n: -1 }, 'memory'])
    for (const key of ['b', 'c']) await get(key)
    events.length = 0
    await get('a')
    assert.deepEqual(events, ['hit'])
    const short = cacheAside<number>(client(), { ttl: 60_000, prefix: 'memory:', memory: { ttl: 50 } })
    await short.get('d', async () => 1)
    await open({ prefix: 'memory:' }).set('d', 2)
    await eventually(async () => await short.get('d', async () => 3) === 2, 'it asks the store again')
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

/** The first name whose slot is on the node at this port, or the first whose slot is not. */
async function nameOn(cluster: Cluster, port: number, isThere: boolean, name: (number: number) => string): Promise<string> {
  const slots = await cluster.cluster('SLOTS')
  for (let number = 0; ; number += 1) {
    const slot = await cluster.cluster('KEYSLOT', name(number))
    const [, , master] = slots.find(([from, to]) => from <= slot && slot <= to)!
    if ((Number(master?.[1]) === port) === isThere) return name(number)
  }
}

test('cache-aside on a cluster: a node with nothing but a tag is away until it answers', async () => {
  const server = await startCluster()
  const cluster = new Cluster([{ host: '127.0.0.1', port: server.port }])
  cluster.on('error', () => undefined)
  try {
    const key = await nameOn(cluster, server.port, false, (number) => `{key-${number}}`)
    const tag = await nameOn(cluster, server.port, true, (number) => `{tag-${number}}`)
    const lastDeletion = await nameOn(cluster, server.port, false, (number) => `prefix-${number}:e`)
    const events: CacheAsideEvent['type'][] = []
    const aside = cacheAside<number>(cluster, {
      ttl: 60_000, timeout: 500, prefix: lastDeletion.slice(0, -1), tags: () => [tag], onEvent: ({ type }) => events.push(type),
    })
    const next = async (): Promise<string | undefined> => {
      const from = events.length
      await aside.get(key, async () => 2)
      return events[from]
    }
    await eventually(async () => await next() === 'hit', 'the value is kept')
    await server.freeze()
    await eventually(async () => await next() === 'away', 'the node is away')
    // This is longer than it takes to query the other nodes and probe again.
    const end = Date.now() + 1500
    while (Date.now() < end) {
      assert.equal(await next(), 'away')
      await new Promise((resolve) => setTimeout(resolve, 10))
    }
    server.thaw()
    await eventually(async () => await next() === 'hit', 'the node is asked again')
  } finally {
    cluster.disconnect()
    server.thaw()
    await server.stop()
  }
})
