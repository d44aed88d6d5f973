// Load on a server under test: 10 connections that rotate through all paths.

import autocannon from 'autocannon'
import { PATHS } from './api.js'
import { percentile } from './report.js'

const CONNECTIONS = 10

/** Requests each path once, and returns the number of cache hits. */
export async function warm(url) {
  let hits = 0
  for (const path of PATHS) {
    const response = await fetch(url + path)
    await response.arrayBuffer()
    if (response.headers.get('x-proxy-cache') === 'HIT') hits += 1
  }
  return hits
}

/** Runs autocannon and keeps the time of each response, because its own result has no p95. */
function run(options) {
  return new Promise((resolve, reject) => {
    const times = []
    const load = autocannon(options, (error, result) => error ? reject(error) : resolve({ result, times }))
    load.on('response', (_client, _status, _bytes, ms) => times.push(ms))
  })
}

/** The results of `seconds` of load; `cpuUs` is the server's processor time for each request. */
export async function load(proxy, seconds) {
  const before = await proxy.ask('cpu')
  const { result, times } = await run({
    url: proxy.url, connections: CONNECTIONS, pipelining: 1, duration: seconds, requests: PATHS.map((path) => ({ path })),
  })
  const after = await proxy.ask('cpu')
  const failed = result.errors + result.timeouts + result.non2xx
  if (failed > 0) throw new Error(`${failed} requests to ${proxy.url} failed`)
  const { latency, requests } = result
  return {
    perSecond: requests.total / result.duration,
    average: latency.average, p50: latency.p50, p95: percentile(times, 95), p975: latency.p97_5, p99: latency.p99,
    total: requests.total,
    cpuUs: (after.user + after.system - before.user - before.system) / requests.total,
  }
}
