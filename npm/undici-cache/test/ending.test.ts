// A store leaves nothing behind: an idle process ends, with or without `close`, and a closed store has no timer.

import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { after, before, describe, test } from 'node:test'
import { type Server, startCluster, startRedis } from './servers.js'

const INDEX = new URL('../src/index.js', import.meta.url).href
/** Far below the alternatives: a process that never ends, or that ends when the client gives up on a silent server. */
const ENDS_WITHIN_MS = 20_000

const USED = `
const key = { origin: 'http://a.test', path: '/', method: 'GET', headers: {} }
const now = Date.now()
const value = { statusCode: 200, statusMessage: '', headers: {}, cachedAt: now, staleAt: now + 60_000, deleteAt: now + 60_000 }
`

/** Each script prints its results. */
const SCRIPTS: readonly (readonly [string, string, string])[] = [
  ['only opened', 'new LarderCacheStore(options)', ''],
  ['a look-up', "console.log(await new LarderCacheStore(options).get(key))", 'undefined\n'],
  ['a write that nobody waits for', `
    new LarderCacheStore(options).on('write', ({ path }) => console.log('written', path)).createWriteStream(key, value).end('a')`, 'written /\n'],
  ['a write and a deletion', `
    const store = new LarderCacheStore(options)
    store.createWriteStream(key, value).end('a')
    console.log((await store.get(key)).statusCode, (await store.deleteTag('x')).isComplete)`, '200 true\n'],
  ['a manager', `
    const manager = new LarderCacheManager(options)
    console.log(await manager.getTags())`, '[]\n'],
  ['a manager that was subscribed', `
    const manager = new LarderCacheManager({ ...options })
    await manager.subscribe()
    await manager.close()
    console.log('closed', ...timers())`, 'closed\n'],
  ['a store that was closed', `
    const store = new LarderCacheStore(options)
    store.createWriteStream(key, value).end('a')
    await store.get(key)
    await store.close()
    console.log('closed', ...timers())`, 'closed\n'],
]

async function run(script: string, options: unknown): Promise<{ printed: string; code: number | null; tookMs: number }> {
  const begun = performance.now()
  const source = `
    import { LarderCacheManager, LarderCacheStore } from '${INDEX}'
    const options = ${JSON.stringify(options)}
    const timers = () => process.getActiveResourcesInfo().filter((name) => name === 'Timeout')
    ${USED}${script}`
  const child = spawn(process.execPath, ['--input-type=module', '--eval', source], { stdio: ['ignore', 'pipe', 'inherit'] })
  const killed = setTimeout(() => child.kill('SIGKILL'), ENDS_WITHIN_MS)
  let printed = ''
  child.stdout.on('data', (piece) => { printed += piece })
  const [code] = await once(child, 'close')
  clearTimeout(killed)
  return { printed, code, tookMs: performance.now() - begun }
}

for (const [name, start] of [['redis-server', startRedis], ['a Redis Cluster', startCluster]] as const) {
  describe(`a process on ${name} ends after`, () => {
    let server: Server
    before(async () => { server = await start() })
    after(() => server.stop())

    for (const tracking of [true, false]) {
      for (const [what, script, expected] of SCRIPTS) {
        test(`${what}, tracking ${tracking}`, async () => {
          const { printed, code } = await run(script, { ...server.options, tracking, prefix: `${what}:${tracking}:` })
          assert.deepEqual([printed, code], [expected, 0])
        })
      }
    }
  })
}

test('closing a store whose server stands still leaves no timer', async () => {
  const server = await startRedis()
  const script = `
    const store = new LarderCacheStore({ ...options, timeout: 200, errorCallback: () => undefined })
    await store.get(key)
    process.send('ready')
    await once(process, 'message')
    await store.close()
    console.log('closed', ...timers())
    process.disconnect()`
  const source = `
    import { once } from 'node:events'
    import { LarderCacheStore } from '${INDEX}'
    const options = ${JSON.stringify(server.options)}
    const timers = () => process.getActiveResourcesInfo().filter((name) => name === 'Timeout')
    ${USED}${script}`
  const child = spawn(process.execPath, ['--input-type=module', '--eval', source], { stdio: ['ignore', 'pipe', 'inherit', 'ipc'] })
  let printed = ''
  child.stdout!.on('data', (piece) => { printed += piece })
  await once(child, 'message')
  await server.freeze()
  child.send('close')
  await once(child, 'close')
  server.thaw()
  await server.stop()
  assert.equal(printed, 'closed\n')
})
