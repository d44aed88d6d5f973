// Measures LOOKUPS look-ups, one after another, that each query the store. Each entry has VARIANTS responses, and the store has
// UNRELATED_KEYS other keys. Reports milliseconds.

import { Redis } from 'iovalkey'
import { CACHES } from './caches.js'
import { keyOf, put, untilFound } from './entries.js'

const RESOURCES = 10
const AT_ONCE = 1000

const lookUps = Number(process.env.LOOKUPS ?? 500)
const unrelated = Number(process.env.UNRELATED_KEYS ?? 50_000)
const variants = Number(process.env.VARIANTS ?? 8)

async function fill() {
  const client = new Redis({ host: '127.0.0.1', port: Number(process.env.REDIS_PORT) })
  for (let at = 0; at < unrelated; at += AT_ONCE) {
    const pipeline = client.pipeline()
    for (let key = at; key < Math.min(unrelated, at + AT_ONCE); key++) pipeline.set(`unrelated:${key}`, 'value')
    await pipeline.exec()
  }
  client.disconnect()
}

const wanted = (at) => keyOf(`/resource/${at % RESOURCES}`, { 'accept-language': `language-${at % variants}` })

const store = CACHES[process.env.CACHE_TYPE].store()
for (let resource = 0; resource < RESOURCES; resource++) {
  for (let variant = 0; variant < variants; variant++) {
    const language = { 'accept-language': `language-${variant}` }
    await put(store, keyOf(`/resource/${resource}`, language), 'x'.repeat(1000), language)
  }
}
await fill()
await untilFound(store, wanted(lookUps - 1))
const times = []
for (let at = 0; at < lookUps; at++) {
  const began = performance.now()
  const found = await store.get(wanted(at))
  times.push(performance.now() - began)
  if (found === undefined) throw new Error(`look-up ${at} found nothing`)
}
times.sort((one, other) => one - other)
const percentile = (share) => times[Math.min(times.length - 1, Math.floor(times.length * share))]
process.send({ average: times.reduce((sum, time) => sum + time, 0) / times.length, p50: percentile(0.5), p95: percentile(0.95), p99: percentile(0.99) })
