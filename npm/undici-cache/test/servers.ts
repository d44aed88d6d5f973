// Servers for tests: on loopback, on free ports, ended with the test.

import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createConnection, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { ConnectionOptions } from '../src/index.js'

export interface Server {
  readonly options: ConnectionOptions
  readonly port: number
  /** Kills the server without notice to its clients. */
  kill(): Promise<void>
  /** Starts the server again, empty, on the same port. */
  restart(): Promise<void>
  /** Suspends the server: its connections stay, and nothing is answered. */
  freeze(): Promise<void>
  thaw(): void
  stop(): Promise<void>
}

/** Generous time limits, since other work on the machine may slow anything; only tests of time limits use short ones. */
const START_MS = 30_000
const timeout = 10_000
const HOST = '127.0.0.1'
const run = promisify(execFile)

/** A port that was free a moment ago. The server might still lose it to another process. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = await new Promise<number>((resolve, reject) => {
      const server = createServer().once('error', reject).listen(0, HOST, () => {
        const { port } = server.address() as { port: number }
        server.close(() => resolve(port))
      })
    })
    // A cluster node also listens on a second port, 10,000 above the first.
    if (port < 55_000) return port
  }
}

export async function eventually(condition: () => boolean | Promise<boolean>, what: string, withinMs = START_MS): Promise<void> {
  const end = Date.now() + withinMs
  while (!await condition()) {
    if (Date.now() > end) throw new Error(`${what} has not happened within ${withinMs} ms`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

function isListening(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection(port, HOST)
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false)).once('close', () => undefined)
    socket.once('connect', () => socket.destroy())
  })
}

function ended(child: ChildProcess): Promise<void> {
  return new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) resolve()
    else child.once('exit', () => resolve())
  })
}

/** Starts a process that listens on this port. The returned function ends it. */
export async function startProcess(command: string, args: readonly string[], port: number): Promise<() => Promise<void>> {
  const child = await listening(command, args, port)
  return () => end(child)
}

async function end(child: ChildProcess): Promise<void> {
  child.kill('SIGKILL')
  await ended(child)
}

/** Suspends a process. SIGSTOP takes effect some time after it is sent, one thread at a time. */
async function stand(child: ChildProcess): Promise<void> {
  child.kill('SIGSTOP')
  await eventually(async () => {
    const { stdout } = await run('ps', ['-L', '-o', 'stat=', '-p', String(child.pid)])
    return stdout.trim().split('\n').every((state) => state.trim().startsWith('T'))
  }, 'the server stands still')
}

const children = new Set<ChildProcess>()
// Leaves no process behind, however a test ends.
process.once('exit', () => children.forEach((child) => child.kill('SIGKILL')))

async function listening(command: string, args: readonly string[], port: number): Promise<ChildProcess> {
  const child = spawn(command, args, { stdio: 'ignore' })
  children.add(child.once('exit', () => children.delete(child)))
  await eventually(() => {
    if (child.exitCode !== null) throw new Error(`${command} has ended with ${child.exitCode}`)
    return isListening(port)
  }, `${command} listens`)
  return child
}

async function startServer(command: string, argsFor: (port: number) => string[], at?: number): Promise<Server> {
  const port = at ?? await freePort()
  let child = await listening(command, argsFor(port), port)
  const kill = (): Promise<void> => end(child)
  const restart = async (): Promise<void> => {
    child = await listening(command, argsFor(port), port)
  }
  const freeze = (): Promise<void> => stand(child)
  const thaw = (): void => void child.kill('SIGCONT')
  return { options: { clientOpts: { host: HOST, port }, timeout }, port, kill, restart, freeze, thaw, stop: kill }
}

export function startRedis(...more: string[]): Promise<Server> {
  return startServer('redis-server', (port) => ['--port', String(port), '--bind', HOST, '--save', '', '--appendonly', 'no', ...more])
}

/** A Redis server with TLS that doesn't request client certificates. */
export function startTlsRedis({ cert, key }: { readonly cert: string; readonly key: string }, at?: number): Promise<Server> {
  return startServer('redis-server', (port) => [
    '--port', '0', '--tls-port', String(port), '--bind', HOST, '--save', '', '--appendonly', 'no',
    '--tls-cert-file', cert, '--tls-key-file', key, '--tls-ca-cert-file', cert, '--tls-auth-clients', 'no',
  ], at)
}

export function larderBinary(): string | undefined {
  return process.env['LARDER']
}

export function startKv(): Promise<Server> {
  return startServer(larderBinary()!, (port) => ['kv', '--listen', `${HOST}:${port}`])
}

/** Three masters. `kill`, `freeze` and `restart` act on the first one. */
export async function startCluster(): Promise<Server> {
  const directory = await mkdtemp(join(tmpdir(), 'larder-cluster-'))
  const nodes = await Promise.all([1, 2, 3].map((node) => startRedis(
    '--cluster-enabled', 'yes', '--cluster-config-file', join(directory, `nodes-${node}.conf`), '--dir', directory,
  )))
  const addresses = nodes.map(({ port }) => `${HOST}:${port}`)
  await run('redis-cli', ['--cluster', 'create', ...addresses, '--cluster-yes'])
  const isReady = async (port: number): Promise<boolean> => (await run('redis-cli', ['-p', String(port), 'cluster', 'info'])).stdout.includes('cluster_state:ok')
  const allReady = async (): Promise<void> => {
    for (const { port } of nodes) await eventually(() => isReady(port), 'the cluster is ready')
  }
  await allReady()
  const [first] = nodes
  const restart = async (): Promise<void> => {
    await first!.restart()
    await allReady()
  }
  const stop = async (): Promise<void> => {
    await Promise.all(nodes.map((node) => node.stop()))
    await rm(directory, { recursive: true })
  }
  return { ...first!, options: { cluster: [{ host: HOST, port: first!.port }], timeout }, restart, stop }
}

export interface Watched extends Server {
  /** Kills the master, so that a replica takes its place. */
  killMaster(): Promise<void>
}

/** A master and a replica, watched by a sentinel. */
export async function startSentinel(): Promise<Watched> {
  const directory = await mkdtemp(join(tmpdir(), 'larder-sentinel-'))
  const master = await startRedis()
  const replica = await startRedis('--replicaof', HOST, String(master.port), '--repl-diskless-sync-delay', '0', '--dir', directory)
  const isInSync = async (): Promise<boolean> => (await run('redis-cli', ['-p', String(replica.port), 'info', 'replication'])).stdout.includes('master_link_status:up')
  await eventually(isInSync, 'the replica is in sync')
  const file = join(directory, 'sentinel.conf')
  await writeFile(file, [
    `sentinel monitor main ${HOST} ${master.port} 1`, 'sentinel down-after-milliseconds main 300', 'sentinel failover-timeout main 3000',
  ].join('\n'))
  const sentinel = await startServer('redis-server', (port) => [file, '--sentinel', '--port', String(port), '--bind', HOST])
  const knowsReplica = async (): Promise<boolean> => (await run('redis-cli', ['-p', String(sentinel.port), 'sentinel', 'replicas', 'main'])).stdout.includes(String(replica.port))
  await eventually(knowsReplica, 'the sentinel knows the replica', 30_000)
  const stop = async (): Promise<void> => {
    await Promise.all([sentinel, replica, master].map((server) => server.stop()))
    await rm(directory, { recursive: true })
  }
  return { ...sentinel, options: { clientOpts: { sentinels: [{ host: HOST, port: sentinel.port }], name: 'main' }, timeout }, killMaster: () => master.kill(), stop }
}
