// Measures the memory of ENTRIES entries in a process that has looked up each of them once. Each body has 3.5 kB. If processes share the
// cache, another store has written the entries. Reports bytes.

import { CACHES, needsRedis } from './caches.js'
import { forEach, keyOf, put } from './entries.js'

const AT_ONCE = 50
const BODY_BYTES = 3500

const type = process.env.CACHE_TYPE
const entries = Number(process.env.ENTRIES ?? 10_000)
const pathOf = (at) => `/api/products/${at}`

/** A body in its own buffer, as from a connection. */
const bodyOf = (at) => Buffer.from(String(at).padEnd(BODY_BYTES, 'abcdefg '))

async function settled() {
  for (let turn = 0; turn < 4; turn++) {
    global.gc()
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  const { heapUsed, external, rss } = process.memoryUsage()
  return { used: heapUsed + external, rss }
}

const store = CACHES[type].store()
if (needsRedis(type)) {
  const writer = CACHES[type].store()
  await forEach(entries, AT_ONCE, (at) => put(writer, keyOf(pathOf(at)), bodyOf(at)))
  await writer.close()
}
const before = await settled()
if (!needsRedis(type)) await forEach(entries, AT_ONCE, (at) => put(store, keyOf(pathOf(at)), bodyOf(at)))
let missed = 0
await forEach(entries, AT_ONCE, async (at) => {
  if (await store.get(keyOf(pathOf(at))) === undefined) missed += 1
})
const after = await settled()
if (missed > 0) throw new Error(`${missed} of ${entries} entries are missing`)
process.send({ used: after.used - before.used, rss: after.rss - before.rss })
