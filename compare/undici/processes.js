// Starts and ends the processes of the measurements. Checks their requirements first. They listen on loopback, and end by process id, even
// after an error or Ctrl-C.

import { execFileSync, fork, spawn } from 'node:child_process'
import { existsSync, statSync } from 'node:fs'
import { createConnection, createServer } from 'node:net'
import { fileURLToPath } from 'node:url'

const HOST = '127.0.0.1'
const START_MS = 10_000
const here = fileURLToPath(new URL('.', import.meta.url))
const packageFolder = fileURLToPath(new URL('../../npm/undici-cache', import.meta.url))

/** A missing requirement that the reader can install or set. */
export class Missing extends Error {}

/** Runs a program, and prints a missing requirement in one line. */
export async function main(name, work) {
  try {
    await work()
    process.exit()
  } catch (error) {
    console.error(error instanceof Missing ? `${name}: ${error.message}` : error)
    process.exit(1)
  }
}

const children = new Set()

function own(child) {
  children.add(child)
  child.once('exit', () => children.delete(child))
  return child
}

process.once('exit', () => children.forEach((child) => child.kill('SIGKILL')))
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => process.exit(130))

/** Ends a process, and waits until it is gone. */
async function stop(child) {
  if (child.exitCode !== null || child.signalCode !== null) return
  const gone = new Promise((resolve) => child.once('exit', resolve))
  child.kill('SIGKILL')
  await gone
}

function isInstalled(folder) {
  const marker = `${folder}/node_modules/.package-lock.json`
  return existsSync(marker) && statSync(marker).mtimeMs >= statSync(`${folder}/package-lock.json`).mtimeMs
}

function npm(folder, ...args) {
  console.error(`bench: npm ${args.join(' ')} in ${folder}`)
  try {
    execFileSync('npm', args, { cwd: folder, stdio: ['ignore', 'ignore', 'inherit'] })
  } catch {
    throw new Missing(`"npm ${args.join(' ')}" has failed in ${folder}: see above`)
  }
}

/** Checks Node.js, installs the dependencies of the lock files, and builds the package. */
export function prepare() {
  const [major, minor] = process.versions.node.split('.').map(Number)
  if (major < 20 || (major === 20 && minor < 18)) throw new Missing(`Node.js is ${process.version}: install 20.18.1 or newer`)
  for (const folder of [packageFolder, here]) {
    if (isInstalled(folder)) continue
    npm(folder, 'ci', '--no-audit', '--no-fund')
    execFileSync('touch', [`${folder}/node_modules/.package-lock.json`])
  }
  npm(packageFolder, 'run', '--silent', 'build')
}

function which(command) {
  try {
    return execFileSync('sh', ['-c', 'command -v -- "$0"', command], { encoding: 'utf8' }).trim()
  } catch {
    return undefined
  }
}

/** The command that starts a store: `redis-server`, or Larder if STORE=kv. */
function storeCommand() {
  const name = process.env.STORE || 'redis'
  if (!['redis', 'kv'].includes(name)) throw new Missing(`STORE is "${name}": expected redis or kv`)
  const command = name === 'redis' ? 'redis-server' : process.env.LARDER || 'larder'
  if (which(command) === undefined) {
    throw new Missing(name === 'redis'
      ? 'redis-server is not installed: install it (apt-get install redis-server), or set STORE=kv, or REDIS_PORT to one that runs'
      : `"${command}" is not a program: build Larder (cargo build --release) and set LARDER to target/release/larder`)
  }
  const args = name === 'redis'
    ? (port) => ['--port', port, '--bind', HOST, '--save', '', '--appendonly', 'no']
    : (port) => ['kv', '--listen', `${HOST}:${port}`]
  return { command, args }
}

/** The version of the store, for the report. */
export function storeVersion() {
  return execFileSync(storeCommand().command, ['--version'], { encoding: 'utf8' }).split('\n')[0].replace(/ sha=.*/, '')
}

/** The URL in BACKEND_URL, or that of an API started here. */
export async function backend() {
  const url = process.env.BACKEND_URL
  if (!url) return (await startApi()).url
  try {
    await fetch(`${url}/health`)
  } catch (error) {
    throw new Missing(`BACKEND_URL is ${url}, where nothing answers (${error.cause?.code ?? error.message}): start it, or leave the variable out`)
  }
  return url
}

/** The port in REDIS_PORT, or that of a store started here. */
export async function redisPort() {
  const port = Number(process.env.REDIS_PORT || 0)
  if (port === 0) return (await startStore()).port
  if (!await isListening(port)) throw new Missing(`REDIS_PORT is ${port}, where nothing listens: start redis-server or larder kv, or leave the variable out`)
  return port
}

/** The port in PROXY_PORT; 0 means a free port. */
export async function proxyPort() {
  const port = Number(process.env.PROXY_PORT || 0)
  if (!Number.isInteger(port) || port < 0 || port > 65_535) throw new Missing(`PROXY_PORT is "${process.env.PROXY_PORT}": expected a number up to 65535`)
  if (port !== 0 && await isListening(port)) throw new Missing(`PROXY_PORT is ${port}, which is taken: choose another one, or leave the variable out`)
  return port
}

function isListening(port) {
  return new Promise((resolve) => {
    const socket = createConnection(port, HOST)
    socket.once('error', () => resolve(false)).once('connect', () => {
      socket.destroy()
      resolve(true)
    })
  })
}

async function until(condition, what, withinMs = START_MS) {
  const end = performance.now() + withinMs
  while (!await condition()) {
    if (performance.now() > end) throw new Error(`${what}: not within ${withinMs} ms`)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

async function freePort() {
  const server = createServer()
  await new Promise((resolve) => server.listen(0, HOST, resolve))
  const { port } = server.address()
  await new Promise((resolve) => server.close(resolve))
  return port
}

/** Starts an empty store. */
export async function startStore() {
  const { command, args } = storeCommand()
  const port = await freePort()
  const child = own(spawn(command, args(String(port)), { stdio: 'ignore' }))
  await until(() => {
    if (child.exitCode !== null) throw new Error(`${command} has ended with ${child.exitCode}`)
    return isListening(port)
  }, `${command} listens`)
  return { port, stop: () => stop(child) }
}

/** Starts a script of this folder, and waits for its first message: its URL, or its results. `ask` sends it a request. */
async function start(script, env, execArgv = []) {
  const child = own(fork(`${here}${script}`, { env: { NODE_NO_WARNINGS: '1', ...process.env, ...env }, execArgv, stdio: ['ignore', 'inherit', 'inherit', 'ipc'] }))
  const first = await new Promise((resolve, reject) => {
    child.once('message', resolve)
    child.once('exit', (code) => reject(new Error(`${script} has ended with ${code}`)))
  })
  const waiting = new Map()
  child.on('message', ({ id, value }) => waiting.get(id)?.(value))
  let asked = 0
  const ask = (question, more = {}) => new Promise((resolve) => {
    waiting.set(asked += 1, resolve)
    child.send({ id: asked, ask: question, ...more })
  })
  return { ...first, ask, stop: () => stop(child) }
}

export function startApi() {
  return start('api.js', { API_PORT: '0' })
}

export function startProxy(type, { backend, redisPort = 0, port = 0 }) {
  return start('proxy.js', { CACHE_TYPE: type, BACKEND_URL: backend, REDIS_PORT: String(redisPort), PROXY_PORT: String(port) })
}

/** Runs a script that reports once, and ends it. */
export async function runOnce(script, env, execArgv) {
  const running = await start(script, env, execArgv)
  await running.stop()
  return running
}
