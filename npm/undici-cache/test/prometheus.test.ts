// Metrics by prom-client.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { test } from 'node:test'
import { Registry } from 'prom-client'
import { LarderCacheStore } from '../src/index.js'
import { collectMetrics } from '../src/prometheus.js'
import { eventually, startRedis } from './servers.js'

test('look-ups, writes, errors and local copies are counted until that is ended', async (t) => {
  const server = await startRedis()
  const store = new LarderCacheStore({ ...server.options, errorCallback: () => undefined })
  t.after(() => store.close())
  const register = new Registry()
  const stop = collectMetrics({ register, stores: [store] })
  const key = (path: string): { origin: string; path: string; method: string; headers: {} } => ({ origin: 'http://metrics.test', path, method: 'GET', headers: {} })
  const now = Date.now()
  assert.equal(await store.get(key('/')), undefined)
  const stream = store.createWriteStream(key('/'), { statusCode: 200, statusMessage: 'OK', headers: {}, cachedAt: now, staleAt: now + 60_000, deleteAt: now + 60_000 })
  await once(stream!.end('body'), 'finish')
  await eventually(async () => await store.get(key('/')) !== undefined && !(store.get(key('/')) instanceof Promise), 'there is a local copy')
  const metrics = await register.metrics()
  for (const line of [
    /^larder_undici_cache_lookups_total\{outcome="miss",by="store"\} 1$/m, /^larder_undici_cache_lookups_total\{outcome="hit",by="copy"\} [1-9]/m,
    /^larder_undici_cache_writes_total 1$/m, /^larder_undici_cache_errors_total 0$/m,
    /^larder_undici_cache_local_entries 1$/m, /^larder_undici_cache_local_bytes [1-9]\d+$/m,
  ]) assert.match(metrics, line)
  await server.stop()
  await store.get(key('/another'))
  assert.match(await register.metrics(), /^larder_undici_cache_errors_total [1-9]/m)
  stop()
  assert.equal((await register.metrics()).trim(), '')
  collectMetrics({ register })()
})
