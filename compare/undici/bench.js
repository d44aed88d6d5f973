// `npm run bench` in npm/undici-cache: measures hits of one cache after another, or of the cache named by CACHE_TYPE or the argument.

import { backend, main, Missing, prepare, proxyPort, redisPort, startProxy } from './processes.js'
import { canonical } from './titles.js'

const SCENARIOS = ['none', 'memory', 'redis-only', 'redis-tracking']

function scenarios(caches) {
  const asked = process.argv[2] ?? process.env.CACHE_TYPE
  if (!asked) return SCENARIOS
  const named = canonical(asked)
  if (caches[named] === undefined) throw new Missing(`CACHE_TYPE is "${named}": expected redis or one of ${Object.keys(caches).join(', ')}`)
  return [named]
}

await main('bench', async () => {
  const seconds = Number(process.env.SECONDS_EACH || 10)
  if (!(seconds > 0)) throw new Missing(`SECONDS_EACH is "${process.env.SECONDS_EACH}": expected a number above 0`)
  const port = await proxyPort()
  prepare()
  const [{ CACHES, needsRedis }, { load, warm }, { loadTables }] = await Promise.all([import('./caches.js'), import('./load.js'), import('./report.js')])
  const types = scenarios(CACHES)
  const url = await backend()
  const found = {}
  for (const type of types) {
    const proxy = await startProxy(type, { backend: url, redisPort: needsRedis(type) ? await redisPort() : 0, port })
    console.error(`bench: ${type} at ${proxy.url}, in front of ${url}`)
    await warm(proxy.url)
    const hits = await warm(proxy.url)
    await load(proxy, Math.min(2, seconds))
    found[type] = await load(proxy, seconds)
    console.error(`bench: ${hits} URLs came from the cache after one round`)
    await proxy.stop()
  }
  console.log(loadTables(found))
})
