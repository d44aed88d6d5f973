// The package from `npm pack` in an empty project: plain JavaScript, TypeScript, and all examples in the pages.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { type Server, startRedis } from './servers.js'

const run = promisify(execFile)
const root = fileURLToPath(new URL('../../', import.meta.url))
/** Behaves like Node.js before 20.19. */
const NO_REQUIRE_OF_MODULES = process.allowedNodeEnvironmentFlags.has('--experimental-require-module') ? ['--no-experimental-require-module'] : []
const PACKED_BYTES_MAX = 120_000

const TYPED = `
import { Agent, interceptors } from 'undici'
import { collectMetrics } from '@larder/undici-cache/prometheus'
import cacheStore, { LarderCacheStore, RedisCacheManager, cacheAside, larderCache, type CacheAside, type CacheEntry, type LarderCacheStoreOptions, type Reached } from '@larder/undici-cache'

const options: LarderCacheStoreOptions = { clientOpts: { host: 'localhost' }, maxCount: 1 }
export const make = (): LarderCacheStore => new cacheStore(options)
export const compose = (store: LarderCacheStore) => new Agent().compose(interceptors.cache({ store }), larderCache({ store, methods: ['GET', 'HEAD'] }))
export const purge = (store: LarderCacheStore): Promise<Reached> => store.deleteTags(['a', ['b', 'c']])
export const list = (manager: RedisCacheManager): AsyncGenerator<CacheEntry> => manager.entries({ origin: 'http://a' })
export const metrics: () => void = collectMetrics()
export const aside = cacheAside<{ id: string }>
export type Aside = CacheAside<number>
// @ts-expect-error: not a number
export const wrong = (): unknown => new LarderCacheStore({ maxCount: 'a' })
console.log(LarderCacheStore.name, cacheStore.prototype instanceof LarderCacheStore)
`

/** The class is the same, however it is loaded. */
const LOADED = {
  'loaded.cjs': `
const Store = require('@larder/undici-cache')
const { LarderCacheStore, RedisCacheStore, default: same } = Store
const { collectMetrics } = require('@larder/undici-cache/prometheus')
const store = new Store({ errorCallback() {} })
import('@larder/undici-cache').then(async (esm) => {
  const { LarderCacheStore: ofFile } = await import(require('node:url').pathToFileURL(require.resolve('@larder/undici-cache')))
  if (ofFile !== LarderCacheStore) throw new Error('names are not known')
  await store.close()
  console.log(esm.default === Store && same === Store, store instanceof LarderCacheStore, esm.LarderCacheStore === LarderCacheStore, typeof collectMetrics)
})`,
  'loaded.mjs': `
import Store, { LarderCacheStore } from '@larder/undici-cache'
import { collectMetrics } from '@larder/undici-cache/prometheus'
import { createRequire } from 'node:module'
const required = createRequire(import.meta.url)('@larder/undici-cache')
const store = new Store({ errorCallback() {} })
await store.close()
console.log(required === Store, store instanceof LarderCacheStore, required.LarderCacheStore === LarderCacheStore, typeof collectMetrics)`,
}

/** Expected output of examples, by a text that they contain. */
const PRINTED: readonly (readonly [string, RegExp])[] = [
  ["cacheStatus: 'my-app'", /^my-app; fwd=miss one\nmy-app; hit one\n$/],
  ["cacheStatus: 'my-proxy'", /^my-proxy; fwd=miss \{ id: '7' \}\nmy-proxy; hit \{ id: '7' \}\n$/],
  ['revalidateTag', /^version 1\nversion 1\nversion 2\n$/],
  ['isComplete', /^true \[ 'web-1' \]\n$/],
  ['collectMetrics', /^larder_undici_cache_lookups_total\{outcome="miss",by="store"\} 1$/m],
]

describe('the package', () => {
  let project = ''
  let redis: Server

  before(async () => {
    redis = await startRedis()
    project = await mkdtemp(join(tmpdir(), 'larder-package-'))
    const { stdout } = await run('npm', ['pack', '--json', '--pack-destination', project], { cwd: root })
    const [packed] = JSON.parse(stdout.slice(stdout.indexOf('[')))
    assert.ok(packed.size < PACKED_BYTES_MAX, `${packed.size} bytes`)
    const target = join(project, 'node_modules/@larder/undici-cache')
    await mkdir(target, { recursive: true })
    await run('tar', ['-xzf', join(project, packed.filename), '-C', target, '--strip-components=1'])
    await writeFile(join(project, 'package.json'), '{ "type": "module" }')
    await linkDependencies(join(project, 'node_modules'))
  })
  after(async () => {
    await redis.stop()
    await rm(project, { recursive: true })
  })

  const runScript = async (name: string, script: string): Promise<string> => {
    await writeFile(join(project, name), script)
    const env = { ...process.env, REDIS_PORT: String(redis.port) }
    const { stdout, stderr } = await run(process.execPath, [...NO_REQUIRE_OF_MODULES, name], { cwd: project, env, timeout: 60_000 })
    assert.equal(stderr, '', name)
    return stdout
  }

  test('works with plain JavaScript', async () => {
    const names = await runScript('names.js', "console.log(Object.keys(await import('@larder/undici-cache')).sort().join())")
    assert.match(names, /LarderCacheManager,LarderCacheStore,RedisCacheManager,RedisCacheStore/)
  })

  for (const [name, script] of Object.entries(LOADED)) {
    test(`is one and the same in ${name}`, async () => assert.equal(await runScript(name, script), 'true true true function\n'))
  }

  /** The installed compiler accepts both forms. */
  test('has declarations that TypeScript 5 takes', async () => {
    const declarations = await readFile(join(project, 'node_modules/@larder/undici-cache/dist/index.d.ts'), 'utf8')
    assert.deepEqual(declarations.match(/^export .*\btype\b.*$/gm), null)
  })

  for (const name of ['typed.mts', 'typed.cts']) {
    test(`works with TypeScript, as strict as it gets, in ${name}`, async () => {
      await writeFile(join(project, name), TYPED)
      for (const exact of ['true', 'false']) {
        const flags = ['--strict', '--exactOptionalPropertyTypes', exact, '--module', 'nodenext', '--target', 'es2022', '--types', 'node', name]
        await run(join(root, 'node_modules/.bin/tsc'), flags, { cwd: project }).catch((error: { stdout: string }) => assert.fail(error.stdout))
      }
      const { stdout } = await run(process.execPath, [...NO_REQUIRE_OF_MODULES, name.replace('ts', 'js')], { cwd: project })
      assert.equal(stdout, 'LarderCacheStore true\n')
    })
  }

  test('supports the versions of undici that its matrix tests', async () => {
    const { peerDependencies } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8')) as { peerDependencies: { undici: string } }
    const script = await readFile(join(root, '../../scripts/npm-matrix'), 'utf8')
    const tested = /lines=\((\d.*)\)/.exec(script)![1]!.split(' ').map((line) => line.split(':')[1])
    const bounds = peerDependencies.undici.split(' || ').map((range) => /^\^((\d+)\.\d+\.\d+)$/.exec(range)!)
    assert.deepEqual(tested, bounds.flatMap(([, oldest, major]) => [oldest, major]))
  })

  test('its reference is up to date', async () => {
    await run(process.execPath, ['reference.js', '--check'], { cwd: root })
  })

  for (const page of ['README.md', 'MIGRATION.md']) {
    test(`runs the examples of ${page}`, async () => {
      const text = await readFile(join(root, page), 'utf8')
      const examples = [...text.matchAll(/```js\n(.*?)```/gs)].map(([, script]) => script!)
      assert.ok(examples.length > 0)
      for (const [at, script] of examples.entries()) {
        const printed = await runScript(`example-${at}.js`, script)
        for (const [name, expected] of PRINTED) if (script.includes(name)) assert.match(printed, expected, name)
      }
    })
  }
})

/** Links the dependencies that `npm install` would download. */
async function linkDependencies(target: string): Promise<void> {
  const source = join(root, 'node_modules')
  for (const name of await readdir(source)) {
    const isPackage = !name.startsWith('.') && (await stat(join(source, name))).isDirectory()
    if (isPackage) await symlink(join(source, name), join(target, name))
  }
}
