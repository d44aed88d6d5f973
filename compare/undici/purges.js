// Two processes over one store, under load: a product changes, its tag is deleted in one process, and the other one is polled until it has the change.

import { load } from './load.js'

const GIVE_UP_MS = 3000
const PAUSE_MS = 20

async function priceAt(url, path) {
  return (await (await fetch(url + path)).json()).price
}

/** Milliseconds from the end of the deletion in one process until the other one answers with the change; `undefined` after 3 s. */
async function purgeOnce(backend, [one, other], product) {
  const path = `/api/products/${product}`
  await priceAt(one.url, path)
  await priceAt(other.url, path)
  const { price } = await (await fetch(backend + path, { method: 'PUT' })).json()
  await one.ask('purge', { tags: [`product:${product}`] })
  const began = performance.now()
  while (performance.now() - began < GIVE_UP_MS) {
    if (await priceAt(other.url, path) === price) return performance.now() - began
  }
  return undefined
}

/** Purges while there is load on both processes. */
export async function purgeUnderLoad(backend, proxies, seconds) {
  let isOver = false
  const loads = Promise.all(proxies.map((proxy) => load(proxy, seconds))).finally(() => { isOver = true })
  const delays = []
  for (let product = 0; !isOver; product = (product + 1) % 400) {
    delays.push(await purgeOnce(backend, proxies, product))
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS))
  }
  const seen = delays.filter((delay) => delay !== undefined).sort((one, other) => one - other)
  const perSecond = (await loads).reduce((sum, result) => sum + result.perSecond, 0)
  return { purges: delays.length, never: delays.length - seen.length, p50: seen[seen.length >> 1], p99: seen[Math.floor(seen.length * 0.99)], perSecond }
}
