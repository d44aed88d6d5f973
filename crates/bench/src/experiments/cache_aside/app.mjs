// An application that caches the results of its slow queries, with Fastify and cacheAside of the package at PACKAGE.

import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const { PACKAGE, ORIGIN, PORT, STORE_PORT } = process.env
const { resolve } = createRequire(`${PACKAGE}/package.json`)
const load = (name) => import(pathToFileURL(resolve(name)))
const [{ default: Fastify }, { Redis }, { cacheAside }] = await Promise.all(['fastify', 'iovalkey', '@larder/undici-cache'].map(load))

const values = cacheAside(new Redis({ host: '127.0.0.1', port: Number(STORE_PORT) }), { ttl: 3_600_000, loadTimeout: 60_000 })

async function query(target) {
  const response = await fetch(ORIGIN + target)
  if (!response.ok) throw new Error(`the query was answered with ${response.status}`)
  return response.text()
}

const app = Fastify()
app.get('/*', async (request, reply) => reply.type('application/json').send(await values.get(request.url, query)))
await app.listen({ host: '127.0.0.1', port: Number(PORT) })
