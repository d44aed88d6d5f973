// A store behind TLS to which this process can't connect: requests go to the origin, and no socket error is uncaught.

import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { createServer, type Server as HttpServer } from 'node:http'
import { createServer as createTcpServer, type Server as TcpServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { promisify } from 'node:util'
import { Agent, request } from 'undici'
import { larderCache, LarderCacheManager, LarderCacheStore, type LarderCacheStoreOptions } from '../src/index.js'
import { eventually, freePort, type Server, startTlsRedis } from './servers.js'

const run = promisify(execFile)
const HOST = '127.0.0.1'

interface Certificate {
  readonly cert: string
  readonly key: string
}

async function makeCertificate(directory: string, name: string, days: number): Promise<Certificate> {
  const [cert, key, csr] = ['cert', 'key', 'csr'].map((part) => join(directory, `${name}.${part}.pem`)) as [string, string, string]
  await run('openssl', ['req', '-new', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', key, '-out', csr, '-subj', `/CN=${name}.test`])
  // A negative number of days creates an expired certificate. `req -x509` doesn't accept a negative number.
  await run('openssl', ['x509', '-req', '-in', csr, '-signkey', key, '-out', cert, '-days', String(days)])
  return { cert, key }
}

describe('a store behind TLS', () => {
  let [directory, base] = ['', '']
  let origin: HttpServer
  let good: Certificate, expired: Certificate
  const uncaught: unknown[] = []
  const note = (error: unknown): void => void uncaught.push(error)

  before(async () => {
    // This listener doesn't replace that of the test runner. Without any listener, an uncaught error ends the process.
    process.on('uncaughtExceptionMonitor', note)
    directory = await mkdtemp(join(tmpdir(), 'larder-tls-'))
    good = await makeCertificate(directory, 'good', 2)
    expired = await makeCertificate(directory, 'expired', -1)
    origin = createServer((_incoming, response) => response.writeHead(200, { 'cache-control': 'public, max-age=60' }).end('answer'))
    await once(origin.listen(0, HOST), 'listening')
    base = `http://${HOST}:${(origin.address() as { port: number }).port}`
  })
  after(async () => {
    process.off('uncaughtExceptionMonitor', note)
    origin.close()
    origin.closeAllConnections()
    await rm(directory, { recursive: true })
  })

  /** A store that can't connect: requests are answered while it retries. */
  const failsOpen = async (options: LarderCacheStoreOptions, name: string): Promise<Error[]> => {
    const errors: Error[] = []
    const store = new LarderCacheStore({ timeout: 10_000, ...options, errorCallback: (error) => errors.push(error) })
    const manager = new LarderCacheManager({ timeout: 10_000, ...options, errorCallback: () => undefined })
    const dispatcher = new Agent().compose(larderCache({ store }))
    const ask = async (): Promise<void> => {
      const { statusCode, body } = await request(`${base}/${errors.length}`, { dispatcher })
      assert.deepEqual([statusCode, await body.text()], [200, 'answer'], name)
    }
    await ask()
    await eventually(async () => {
      await ask()
      return errors.filter(({ message }) => !message.includes('not connected')).length >= 5
    }, `it tries again: ${name}`)
    await Promise.all([store.close(), manager.close(), dispatcher.close()])
    assert.deepEqual(uncaught, [], name)
    return errors
  }

  for (const tracking of [true, false]) {
    test(`certificates that are not for this store, tracking ${tracking}`, async () => {
      const check = async (certificate: Certificate, tls: object, expected: RegExp): Promise<void> => {
        const server = await startTlsRedis(certificate)
        const errors = await failsOpen({ clientOpts: { host: HOST, port: server.port, tls }, tracking }, String(expected))
        assert.ok(errors.some(({ message }) => expected.test(message)), errors.map(({ message }) => message).join('\n'))
        await server.stop()
      }
      const ca = await Promise.all([good, expired].map(({ cert }) => readFile(cert)))
      await check(good, {}, /self-signed certificate/)
      await check(expired, { ca, servername: 'expired.test' }, /certificate has expired/)
      await check(good, { ca, servername: 'other.test' }, /does not match certificate/)
    })

    test(`handshakes that the other side ends, tracking ${tracking}`, async () => {
      const check = async (hello: (socket: Socket) => unknown, name: string): Promise<void> => {
        const server: TcpServer = createTcpServer((socket) => socket.on('error', () => undefined).once('data', () => hello(socket)))
        await once(server.listen(0, HOST), 'listening')
        const { port } = server.address() as { port: number }
        await failsOpen({ clientOpts: { host: HOST, port, tls: {} }, tracking }, name)
        server.close()
      }
      await check((socket) => socket.resetAndDestroy(), 'reset')
      await check((socket) => socket.end(), 'closed')
      await check((socket) => socket.end('-ERR this is not TLS\r\n'), 'plain text')
      await check((socket) => socket.end(Buffer.from([21, 3, 3, 0, 2, 2, 40])), 'alert')
    })
  }

  test('sentinels with a certificate that is not trusted', async () => {
    const server = await startTlsRedis(good)
    const sentinels = [{ host: HOST, port: server.port }]
    const clientOpts = { sentinels, name: 'main', sentinelTLS: {}, enableTLSForSentinelMode: true, tls: {}, sentinelRetryStrategy: () => null }
    await failsOpen({ clientOpts }, 'sentinels')
    await server.stop()
  })

  test('a certificate that is not trusted any more after a restart', async () => {
    const port = await freePort()
    let server: Server = await startTlsRedis(good, port)
    const tls = { ca: await readFile(good.cert), servername: 'good.test' }
    const errors: Error[] = []
    const store = new LarderCacheStore({ clientOpts: { host: HOST, port, tls }, timeout: 10_000, errorCallback: (error) => errors.push(error) })
    const dispatcher = new Agent().compose(larderCache({ store, cacheStatus: 'test' }))
    const ask = async (): Promise<string> => {
      const { headers, body } = await request(`${base}/restart`, { dispatcher })
      assert.equal(await body.text(), 'answer')
      return String(headers['cache-status'])
    }
    await eventually(async () => await ask() === 'test; hit', 'it is stored')
    await server.stop()
    server = await startTlsRedis(expired, port)
    await eventually(async () => {
      await ask()
      return errors.filter(({ message }) => /certificate/.test(message)).length >= 5
    }, 'it has tried again')
    await server.stop()
    server = await startTlsRedis(good, port)
    await eventually(async () => await ask() === 'test; hit', 'it is stored again')
    assert.deepEqual(uncaught, [])
    await Promise.all([store.close(), dispatcher.close()])
    await server.stop()
  })
})
