// Processes that share a store with gateways and with each other: deletions and purges wait for all of them, and report those that haven't confirmed.

import assert from 'node:assert/strict'
import { type ChildProcess, execFile, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer, request as httpRequest, type IncomingMessage, type Server as HttpServer } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { Redis } from 'iovalkey'
import { Fleet } from '../src/fleet.js'
import { type ConnectionOptions, LarderCacheManager, type Reached } from '../src/index.js'
import { checkConnection } from '../src/options.js'
import { SharedStore } from '../src/shared-store.js'
import type { Tier } from '../src/tier.js'
import type { Request } from './member.js'
import { eventually, freePort, larderBinary, type Server, startCluster, startKv, startProcess, startRedis } from './servers.js'

const HOST = 'shop.test'

/** Longer than any wait for another process: T plus a second, with an allowance for a busy machine. */
const SOON_MS = 20_000

class Member {
  readonly name: string
  readonly #child: ChildProcess

  constructor(options: ConnectionOptions, name: string) {
    this.name = name
    const more = { site: 'shop', cacheTagsHeader: 'cache-tags', instance: name }
    this.#child = fork(fileURLToPath(new URL('./member.js', import.meta.url)), [JSON.stringify({ ...options, ...more })])
  }

  async ready(): Promise<void> {
    await once(this.#child, 'message')
  }

  async do(request: Request): Promise<unknown> {
    const answered = once(this.#child, 'message')
    this.#child.send(request)
    const [{ value, error }] = await answered as [{ value?: unknown; error?: string }]
    if (error !== undefined) throw new Error(error)
    return value
  }

  async get(path: string): Promise<{ body: string; isCopy: boolean } | undefined> {
    return await this.do({ do: 'get', path }) as { body: string; isCopy: boolean } | undefined
  }

  /** Waits until a look-up is answered by a copy. */
  async keep(path: string): Promise<void> {
    await eventually(async () => (await this.get(path))?.isCopy === true, `${this.name} keeps a copy of ${path}`)
  }

  signal(signal: NodeJS.Signals): void {
    this.#child.kill(signal)
  }

  async end(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    this.#child.kill('SIGKILL')
    await once(this.#child, 'exit')
  }
}

/** The members that have followed a purge, as reported. */
interface Told {
  readonly isComplete: boolean
  readonly followed: readonly string[]
  readonly missing: readonly string[]
}

function toldBy({ isComplete, members }: Reached): Told {
  const names = (hasFollowed: boolean): string[] => members.filter(({ afterMs }) => (afterMs !== undefined) === hasFollowed).map(({ name }) => name).sort()
  return { isComplete, followed: names(true), missing: names(false) }
}

class Gateway {
  #port = 0
  #admin = 0
  #directory = ''
  #stop: () => Promise<void> = () => Promise.resolve()

  async start(redisPort: number, originPort: number): Promise<void> {
    this.#directory = await mkdtemp(join(tmpdir(), 'larder-fleet-'))
    ;[this.#port, this.#admin] = [await freePort(), await freePort()]
    const file = join(this.#directory, 'larder.toml')
    await writeFile(file, [
      `listen = ["127.0.0.1:${this.#port}"]`, '[admin]', `listen = "127.0.0.1:${this.#admin}"`,
      '[store.remote]', `url = "redis://127.0.0.1:${redisPort}/0"`, 'instance = "gateway"', 'record_timeout = "2s"',
      '[[site]]', 'name = "shop"', `origin = "http://127.0.0.1:${originPort}"`, 'tags = ["cache-tags"]',
    ].join('\n'))
    this.#stop = await startProcess(larderBinary()!, ['serve', file], this.#port)
  }

  async get(path: string): Promise<string> {
    const sent = httpRequest({ host: '127.0.0.1', port: this.#port, path, headers: { host: HOST } }).end()
    const [response] = await once(sent, 'response') as [IncomingMessage]
    const pieces: Buffer[] = []
    for await (const piece of response) pieces.push(piece as Buffer)
    return Buffer.concat(pieces).toString()
  }

  /** Purges by the admin API, and returns the members that have followed. */
  async purge(tag: string): Promise<Told> {
    const body = JSON.stringify({ tags: [tag], site: 'shop' })
    const sent = httpRequest({ host: '127.0.0.1', port: this.#admin, path: '/purge', method: 'POST' }).end(body)
    const [response] = await once(sent, 'response') as [IncomingMessage]
    const pieces: Buffer[] = []
    for await (const piece of response) pieces.push(piece as Buffer)
    const { fleet } = JSON.parse(Buffer.concat(pieces).toString()) as { fleet: { complete: boolean; instances: { name: string; id: string; reached_ms?: number }[] } }
    return toldBy({ isComplete: fleet.complete, members: fleet.instances.map(({ name, id, reached_ms }) => ({ name, id, afterMs: reached_ms })) })
  }

  /** Purges by the command line, and returns its exit status and output. */
  purgeByCommand(...args: string[]): Promise<{ status: number; printed: string }> {
    return new Promise((resolve) => {
      execFile(larderBinary()!, ['purge', '--admin', `127.0.0.1:${this.#admin}`, ...args], (error, stdout, stderr) => {
        resolve({ status: error === null ? 0 : Number(error.code), printed: stdout + stderr })
      })
    })
  }

  async stop(): Promise<void> {
    await this.#stop()
    await rm(this.#directory, { recursive: true })
  }
}

/** An origin that numbers its responses. */
async function startOrigin(): Promise<HttpServer> {
  let count = 0
  const server = createServer((incoming, response) => {
    response.writeHead(200, { 'cache-control': 'public, max-age=600', 'cache-tags': 'page' }).end(`${incoming.url} ${count += 1}`)
  })
  await once(server.listen(0, '127.0.0.1'), 'listening')
  return server
}

for (const [what, start] of [['redis-server', startRedis], ['larder kv', startKv]] as const) {
  describe(`a gateway and two processes on ${what}`, { skip: larderBinary() === undefined }, () => {
    const gateway = new Gateway()
    let server: Server
    let origin: HttpServer
    let [one, two]: Member[] = []
    const members = (): Member[] => [one!, two!]
    const keepAll = async (path: string): Promise<void> => {
      await one!.do({ do: 'put', path })
      for (const member of members()) await member.keep(path)
    }

    before(async () => {
      server = await start()
      origin = await startOrigin()
      await gateway.start(server.port, (origin.address() as { port: number }).port)
      ;[one, two] = [new Member(server.options, 'one'), new Member(server.options, 'two')]
      await Promise.all(members().map((member) => member.ready()))
      await keepAll('/joined')
    })
    after(async () => {
      await Promise.all(members().map((member) => member.end()))
      await gateway.stop()
      await server.stop()
      origin.close()
    })

    test('a purge through the gateway waits until both have dropped their copies', async () => {
      const all = ['gateway', 'one', 'two']
      for (let round = 0; round < 20; round++) {
        await keepAll('/purged')
        assert.deepEqual(await gateway.purge('page'), { isComplete: true, followed: all, missing: [] })
        for (const member of members()) assert.equal(await member.get('/purged'), undefined)
      }
      await keepAll('/purged')
      const { status, printed } = await gateway.purgeByCommand(`http://${HOST}/purged`)
      assert.match(printed, /all 3 instances have applied it/)
      assert.ok(status === 0 || status === 3, printed)
      for (const member of members()) assert.equal(await member.get('/purged'), undefined)
    })

    test('a deletion by one waits for the other, and for the gateway', async () => {
      for (let round = 0; round < 20; round++) {
        const before = await gateway.get('/deleted')
        assert.equal(await gateway.get('/deleted'), before)
        await two!.keep('/deleted')
        const told = toldBy(await one!.do({ do: 'deleteTag', tag: 'page' }) as Reached)
        assert.deepEqual(told, { isComplete: true, followed: ['gateway', 'one', 'two'], missing: [] })
        assert.equal(await two!.get('/deleted'), undefined)
        assert.notEqual(await gateway.get('/deleted'), before)
      }
      const before = await gateway.get('/deleted')
      await one!.do({ do: 'delete', path: '/deleted' })
      assert.notEqual(await gateway.get('/deleted'), before)
    })

    test('one that stands still is named, and uses nothing old when it goes on', async () => {
      await keepAll('/still')
      two!.signal('SIGSTOP')
      // The purges run in parallel, since each waits, and the member's record must not expire before all have begun.
      const [byGateway, { status, printed }, byOne] = await Promise.all([
        gateway.purge('page'),
        gateway.purgeByCommand('--tag', 'page', '--site', 'shop'),
        one!.do({ do: 'deleteTag', tag: 'page' }),
      ])
      const incomplete = { isComplete: false, followed: ['gateway', 'one'], missing: ['two'] }
      assert.deepEqual(byGateway, incomplete)
      assert.equal(status, 4, printed)
      assert.match(printed, /two/)
      assert.deepEqual(toldBy(byOne as Reached), incomplete)
      // Once the record of the member has expired, purges no longer wait for it.
      await eventually(async () => (await gateway.purge('page')).isComplete, 'a purge is complete without it', SOON_MS)
      const answered = two!.get('/still')
      two!.signal('SIGCONT')
      assert.equal(await answered, undefined)
      await eventually(async () => (await gateway.purge('page')).followed.includes('two'), 'it is a member again')
    })

    test('one that is closed is waited for no more, and one that dies not for long', async (t) => {
      const leaving = new Member(server.options, 'leaving')
      t.after(() => leaving.end())
      await leaving.ready()
      assert.equal(await leaving.get('/left'), undefined)
      await leaving.do({ do: 'put', path: '/left' })
      await leaving.keep('/left')
      assert.deepEqual((await gateway.purge('page')).followed, ['gateway', 'leaving', 'one', 'two'])
      await leaving.do({ do: 'close' })
      assert.deepEqual(await gateway.purge('page'), { isComplete: true, followed: ['gateway', 'one', 'two'], missing: [] })
      await leaving.end()
      await two!.end()
      assert.deepEqual((await gateway.purge('page')).missing, ['two'])
      await eventually(async () => (await gateway.purge('page')).isComplete, 'a purge is complete without it', SOON_MS)
      assert.deepEqual(toldBy(await one!.do({ do: 'deleteTag', tag: 'page' }) as Reached), { isComplete: true, followed: ['gateway', 'one'], missing: [] })
    })
  })
}

describe('processes alone on a Redis Cluster', () => {
  let server: Server
  let [one, two]: Member[] = []

  before(async () => {
    server = await startCluster()
    ;[one, two] = [new Member(server.options, 'one'), new Member(server.options, 'two')]
    await Promise.all([one.ready(), two.ready()])
  })
  after(async () => {
    await Promise.all([one!.end(), two!.end()])
    await server.stop()
  })

  test('a deletion waits for all others, also one by a manager', async (t) => {
    const manager = new LarderCacheManager({ ...server.options, site: 'shop' })
    t.after(() => manager.close())
    const all = { isComplete: true, followed: ['one', 'two'], missing: [] }
    for (let round = 0; round < 10; round++) {
      for (const purge of [() => one!.do({ do: 'deleteTag', tag: 'page' }), () => manager.deleteTag('page')]) {
        await one!.do({ do: 'put', path: '/a' })
        await two!.keep('/a')
        assert.deepEqual(toldBy(await purge() as Reached), all)
        assert.equal(await two!.get('/a'), undefined)
      }
    }
  })
})

/** Purges are complete once the others have stopped waiting for the suspended process. */
test('a process that stands still while it reads finds nothing that was purged meanwhile', async (t) => {
  const server = await startRedis()
  const modes = [true, false].flatMap((tracking) => Array.from({ length: 3 }, () => tracking))
  const readers = modes.map((tracking, at) => new Member({ ...server.options, tracking } as ConnectionOptions, `reader ${at}`))
  const purger = new Member(server.options, 'purger')
  t.after(async () => {
    await Promise.all([purger, ...readers].map((member) => member.end()))
    await server.stop()
  })
  await Promise.all([purger, ...readers].map((member) => member.ready()))
  const path = '/'
  await purger.get(path)
  await purger.do({ do: 'put', path })
  for (const reader of readers) await eventually(async () => await reader.get(path) !== undefined, 'all find it')
  await Promise.all(readers.map((reader) => reader.do({ do: 'watch', path })))
  for (const reader of readers) {
    const { asked } = await reader.do({ do: 'lastFound' }) as { asked: number }
    await eventually(async () => (await reader.do({ do: 'lastFound' }) as { asked: number }).asked > asked + 10, 'it reads')
    reader.signal('SIGSTOP')
  }
  await eventually(async () => (await purger.do({ do: 'deleteTag', tag: 'page' }) as Reached).isComplete, 'a deletion is complete without them', SOON_MS)
  const purgedMs = Date.now()
  for (const reader of readers) reader.signal('SIGCONT')
  for (const reader of readers) {
    const { asked } = await reader.do({ do: 'lastFound' }) as { asked: number }
    await eventually(async () => (await reader.do({ do: 'lastFound' }) as { asked: number }).asked > asked + 50, 'it reads on')
    const { lastFoundMs } = await reader.do({ do: 'lastFound' }) as { lastFoundMs: number }
    assert.ok(lastFoundMs > 0 && lastFoundMs <= purgedMs, `${reader.name} found it ${lastFoundMs - purgedMs} ms after it was purged`)
  }
})

test('a process that others no longer wait for asks before it uses its copies', async (t) => {
  const server = await startRedis()
  const client = new Redis(server.options.clientOpts!)
  const member = new Member(server.options, 'one')
  t.after(async () => {
    await member.end()
    client.disconnect()
    await server.stop()
  })
  await member.ready()
  await member.get('/a')
  await member.do({ do: 'put', path: '/a' })
  await member.keep('/a')
  // The member can't write its record, but still receives invalidation messages.
  await client.config('SET', 'maxmemory-policy', 'noeviction')
  await client.config('SET', 'maxmemory', '1')
  await eventually(async () => (await member.get('/a'))?.isCopy === false, 'it asks first', SOON_MS)
  assert.deepEqual(await member.get('/a'), { body: 'body of /a', isCopy: false })
  await client.config('SET', 'maxmemory', '0')
  await member.keep('/a')
})

test('one that enters the list while another one looks stays in it', async () => {
  const server = await startRedis()
  const shared = new SharedStore(checkConnection(server.options), false, { changed: () => undefined, up: () => undefined, down: () => undefined })
  await shared.settled()
  const { tier } = shared
  const read = { id: '0'.repeat(31) + '1', offset: 0 }
  const [one, two] = ['1', '2'].map((digit) => ({ id: digit.repeat(32), name: digit, read }))
  const quick = new Fleet(tier)
  let meanwhile = async (): Promise<void> => {
    meanwhile = () => Promise.resolve()
    await quick.say(one!)
    await quick.enlist(one!.id)
  }
  const slow = new Fleet({
    put: (...args) => tier.put(...args), putWhereNone: (...args) => tier.putWhereNone(...args), replace: (...args) => tier.replace(...args),
    loadWithTtl: async (...args) => {
      const found = await tier.loadWithTtl(...args)
      await meanwhile()
      return found
    },
    loadMany: (...args) => tier.loadMany(...args),
  } as Tier)
  await slow.say(two!)
  await slow.enlist(two!.id)
  assert.deepEqual([await quick.lists(one!.id), await quick.lists(two!.id)], [true, true])
  shared.close()
  await server.stop()
})
