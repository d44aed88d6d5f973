// Runs all measurements. README.md describes the measurements and their variables.

import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { cpus } from 'node:os'
import { PATHS } from './api.js'
import { CACHES, needsRedis } from './caches.js'
import { load, warm } from './load.js'
import { Missing, runOnce, startApi, startProxy, startStore, storeVersion } from './processes.js'
import { purgeUnderLoad } from './purges.js'
import { medians } from './report.js'

const number = (name, otherwise) => {
  const value = Number(process.env[name] || otherwise)
  if (!(value > 0)) throw new Missing(`${name} is "${process.env[name]}": expected a number above 0`)
  return value
}

const say = (text) => process.stderr.write(`compare: ${text}\n`)

/** The rows that CACHES selects; all by default. */
function chosen(types) {
  const wanted = (process.env.CACHES ?? '').split(/[\s,]+/).filter(Boolean)
  const unknown = wanted.find((type) => CACHES[type] === undefined)
  if (unknown !== undefined) throw new Missing(`CACHES has "${unknown}": expected some of ${Object.keys(CACHES).join(', ')}`)
  return types.filter((type) => wanted.length === 0 || wanted.includes(type))
}

/** Starts all servers under test, so that rounds can alternate among them. */
async function startAll(types, backend) {
  const running = []
  for (const type of types) {
    const store = needsRedis(type) ? await startStore() : undefined
    running.push({ type, store, proxy: await startProxy(type, { backend, redisPort: store?.port }) })
  }
  return running
}

async function measureLoad(types, backend, { rounds, seconds }) {
  const running = await startAll(types, backend)
  const found = new Map(types.map((type) => [type, []]))
  for (const { type, proxy } of running) {
    say(`warming up: ${type}`)
    await warm(proxy.url)
    const hits = await warm(proxy.url)
    if (type !== 'none' && hits < PATHS.length) say(`${type}: only ${hits} of ${PATHS.length} come from the cache`)
    await load(proxy, Math.min(2, seconds))
  }
  for (let round = 1; round <= rounds; round++) {
    // Each round begins with a different cache, so that none benefits from the machine's earlier state.
    for (const at of running.keys()) {
      const { type, proxy } = running[(at + round) % running.length]
      say(`round ${round} of ${rounds}: ${type}`)
      found.get(type).push(await load(proxy, seconds))
    }
  }
  for (const { proxy, store } of running) await Promise.all([proxy.stop(), store?.stop()])
  return Object.fromEntries([...found].map(([type, results]) => [type, medians(results)]))
}

/** Runs a script for each cache, with a store of its own. */
async function measureEach(types, script, env, execArgv) {
  const found = {}
  for (const type of types) {
    say(`${script}: ${type}`)
    const store = needsRedis(type) ? await startStore() : undefined
    const { ask, stop, ...result } = await runOnce(script, { ...env, CACHE_TYPE: type, REDIS_PORT: String(store?.port ?? 0) }, execArgv)
    await store?.stop()
    found[type] = result
  }
  return found
}

async function measurePurges(types, backend, seconds) {
  const found = {}
  for (const type of types) {
    say(`purges: ${type}`)
    const store = await startStore()
    const proxies = [await startProxy(type, { backend, redisPort: store.port }), await startProxy(type, { backend, redisPort: store.port })]
    for (const { url } of proxies) await warm(url)
    found[type] = await purgeUnderLoad(backend, proxies, seconds)
    for (const proxy of proxies) await proxy.stop()
    await store.stop()
  }
  return found
}

function about() {
  const version = (path) => JSON.parse(readFileSync(new URL(path, import.meta.url))).version
  const git = (...args) => execFileSync('git', args, { cwd: new URL('.', import.meta.url), encoding: 'utf8' }).trim()
  const isChanged = git('status', '--porcelain', '--', '.', '../../npm') !== ''
  return {
    date: new Date().toISOString().slice(0, 10),
    commit: git('rev-parse', '--short=12', 'HEAD') + (isChanged ? ' with changes' : ''),
    machine: `${cpus().length} × ${cpus()[0].model.trim()}`,
    node: process.versions.node,
    undici: version('node_modules/undici/package.json'),
    peer: version('node_modules/undici-cache-redis/package.json'),
    store: storeVersion(),
  }
}

export async function measure() {
  const parameters = {
    rounds: number('ROUNDS', 5), seconds: number('SECONDS_EACH', 30),
    unrelatedKeys: number('UNRELATED_KEYS', 50_000), lookUps: number('LOOKUPS', 500), variants: number('VARIANTS', 8), entries: number('ENTRIES', 10_000),
  }
  const { url: backend, stop } = await startApi()
  const { unrelatedKeys, lookUps, variants, entries } = parameters
  const results = {
    about: about(),
    parameters,
    load: await measureLoad(chosen(Object.keys(CACHES)), backend, parameters),
    lookUps: await measureEach(chosen(['peer-redis-only', 'redis-only']), 'lookups.js', { UNRELATED_KEYS: String(unrelatedKeys), LOOKUPS: String(lookUps), VARIANTS: String(variants) }),
    memory: await measureEach(chosen(['memory', 'peer-redis-tracking', 'redis-tracking']), 'memory.js', { ENTRIES: String(entries) }, ['--expose-gc']),
    purges: await measurePurges(chosen(['peer-redis-tracking', 'redis-tracking', 'redis-only']), backend, parameters.seconds),
  }
  await stop()
  return results
}
