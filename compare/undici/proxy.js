// The server under test: an HTTP server that requests everything from BACKEND_URL with undici, through the cache in CACHE_TYPE. It listens
// on PROXY_PORT, and its store is at REDIS_PORT. A parent process can ask it over IPC for its CPU time, and to purge.

import { createServer } from 'node:http'
import { request } from 'undici'
import { openCache } from './caches.js'

const type = process.env.CACHE_TYPE ?? 'redis-tracking'
const backend = process.env.BACKEND_URL ?? 'http://127.0.0.1:3000'
const { dispatcher, store } = openCache(type)
/**
 * The request field in the API's `Vary`. Without it, undici-cache-redis 1.0.1 uses none of its local copies: it treats a field that is absent from both
 * requests as a mismatch.
 */
const headers = { 'x-some-header': 'bench' }

const server = createServer(async (incoming, outgoing) => {
  try {
    const { statusCode, headers: fields, body } = await request(backend + incoming.url, { dispatcher, headers, method: incoming.method })
    outgoing.writeHead(statusCode, { 'content-type': fields['content-type'] ?? 'text/plain', 'x-proxy-cache': fields.age === undefined ? 'MISS' : 'HIT' })
    outgoing.end(Buffer.from(await body.arrayBuffer()))
  } catch (error) {
    outgoing.writeHead(502).end(String(error))
  }
})
server.keepAliveTimeout = 60_000

const ANSWERS = {
  cpu: () => process.cpuUsage(),
  purge: ({ tags }) => store?.deleteTags(tags),
}

process.on('message', async (message) => {
  process.send({ id: message.id, value: await ANSWERS[message.ask](message) ?? null })
})
process.once('disconnect', () => process.exit())

server.once('error', (error) => {
  console.error(`the server under test can't listen: ${error.message}`)
  process.exit(1)
})
server.listen(Number(process.env.PROXY_PORT ?? 3001), '127.0.0.1', () => {
  const url = `http://127.0.0.1:${server.address().port}`
  if (process.send) process.send({ url })
  else console.log(`${type} in front of ${backend} listens on ${url}`)
})
