// The tests of undici-cache-redis, from its package, with their import replaced by this package.

import assert from 'node:assert/strict'
import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdir } from 'node:fs/promises'
import { basename } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { freePort, type Server, startRedis } from './servers.js'

const root = fileURLToPath(new URL('../../', import.meta.url))
const peer = `${root}node_modules/undici-cache-redis/`
const PRELOADED = `${root}test/peer-preload.cjs`
/** Separate from packages that other tests build. */
const SWITCHED_TO = `${root}build/peer`
const TESTS = 40

/** Tests that count names on the server, where this package uses different names. */
const OF_KEY_NAMES = [
  'should handle big number of concurrent requests', 'invalidates cache by cache keys', 'invalidates cache by ids', 'invalidates cache by combined cache tag',
  'invalidates cache by cache tag',
]
/** Tests of a class outside its public interface. */
const INTERNAL = ['tracking-cache.test.js']

interface Outcome {
  readonly name: string
  readonly isOk: boolean
  readonly detail: string
}

describe("undici-cache-redis's tests", () => {
  let server: Server
  before(async () => {
    server = await startRedis()
    await promisify(execFile)(process.execPath, ['build.js', SWITCHED_TO], { cwd: root })
  })
  after(() => server.stop())

  test('pass, but those of its key names', async () => {
    const files = (await readdir(`${peer}test`)).filter((name) => name.endsWith('.test.js') && !INTERNAL.includes(name))
    const outcomes: Outcome[] = []
    for (const file of files) outcomes.push(...await outcomesOf(file, { 6379: server.port, 6389: server.port, 6399: await freePort() }))
    const failed = outcomes.filter(({ isOk }) => !isOk)
    assert.deepEqual(failed.map(({ name }) => name).sort(), [...OF_KEY_NAMES].sort(), failed.map(({ name, detail }) => `${name}\n${detail}`).join('\n'))
    assert.equal(outcomes.length, TESTS)
  })
})

/** Test files share a server and flush it, so they run one after another. */
async function outcomesOf(file: string, ports: Record<number, number>): Promise<Outcome[]> {
  const args = ['--require', PRELOADED, '--test-reporter', 'tap', `test/${file}`]
  const { NODE_TEST_CONTEXT: _, ...env } = process.env
  const child = spawn(process.execPath, args, { cwd: peer, env: { ...env, PORTS: JSON.stringify(ports), SWITCHED_TO: `${SWITCHED_TO}/main.js` }, stdio: ['ignore', 'pipe', 'inherit'], timeout: 120_000 })
  let text = ''
  child.stdout.on('data', (piece) => { text += piece })
  await once(child, 'close')
  // Only the tests count, not the suites that contain them.
  const lines = [...text.matchAll(/^ *(not )?ok \d+ - (.*)\n(?: *---\n([^]*?)\n *\.\.\.)?/gm)].filter(([, , , detail]) => !detail?.includes("type: 'suite'"))
  assert.ok(lines.length > 0, `${basename(file)} has no outcome:\n${text}`)
  return lines.map(([, failed, name, detail = '']) => ({ name: name!, isOk: failed === undefined, detail }))
}
