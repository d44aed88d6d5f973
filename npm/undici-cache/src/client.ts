// Clients that the application already has: ioredis, iovalkey and node-redis, described by the properties that they share. The store opens its own connections
// with their settings, because tracking, WATCH and subscriptions each need a connection to themselves that doesn't reconnect unnoticed.

import type { RedisOptions } from 'iovalkey'
import type { NodeAddress } from './nodes.js'

/** ioredis or iovalkey, one server or a cluster. */
export interface IoRedisLike {
  readonly options: object
  callBuffer(command: string, ...args: (string | Buffer | number)[]): Promise<unknown>
  disconnect(): void
}

/** node-redis (`redis`), 4 or newer, one server or a cluster. */
export interface NodeRedisLike {
  // The arguments differ between clients of one server and of a cluster.
  sendCommand(...args: never[]): Promise<unknown>
}

export type RedisClientLike = IoRedisLike | NodeRedisLike

/** The settings of one connection. */
export type ConnectionSettings = RedisOptions

interface NodeRedisOptions {
  readonly socket?: Readonly<Record<string, unknown>>
  readonly username?: string
  readonly password?: string
  readonly database?: number
  readonly credentialsProvider?: { readonly type: string; readonly credentials?: () => Promise<{ readonly username?: string; readonly password: string }> }
}

interface ClusterSettings {
  readonly seeds: readonly NodeAddress[]
  readonly settings: ConnectionSettings
}

/** Socket options of node-redis that don't concern TLS. */
const NOT_OF_TLS = new Set(['host', 'port', 'path', 'tls', 'family', 'connectTimeout', 'socketTimeout', 'reconnectStrategy', 'keepAlive', 'keepAliveInitialDelay', 'noDelay'])
const UNREADABLE = 'tracking needs connections of its own, and the settings for them can\'t be read from opts.client: give it a client of ioredis, iovalkey or node-redis, '
  + 'or use opts.clientOpts'

/** The nodes of the cluster to which a client connects; `undefined` for a client of one server. */
export function seedsOf(client: RedisClientLike): readonly NodeAddress[] | undefined {
  return clusterOf(client)?.seeds
}

/** The settings of a client. Read before each connection, because passwords may change. */
export async function settingsOf(client: RedisClientLike): Promise<ConnectionSettings> {
  const cluster = clusterOf(client)
  if (cluster !== undefined) return cluster.settings
  return isIoRedis(client) ? ioRedisSettings(client.options) : nodeRedisSettings(optionsOf(client))
}

/** Ends a client that was made only to read its settings. */
export function discard(client: RedisClientLike): void {
  const { on, disconnect, destroy, isOpen } = client as Record<string, any>
  on?.call(client, 'error', () => undefined)
  if (isIoRedis(client)) disconnect.call(client)
  else if (isOpen === true) (destroy ?? disconnect).call(client)
}

/** The key prefix of a client. */
export function keyPrefixOf(client: RedisClientLike): string {
  const { keyPrefix } = isIoRedis(client) ? client.options as { keyPrefix?: string } : {}
  return keyPrefix ?? ''
}

export function checkClient(client: unknown): RedisClientLike {
  const found = client as Partial<IoRedisLike & NodeRedisLike> | undefined
  const isIo = typeof found?.callBuffer === 'function' && typeof found.options === 'object'
  if (!isIo && typeof found?.sendCommand !== 'function') throw new TypeError(UNREADABLE)
  if (!isIo && clusterOf(client as RedisClientLike) === undefined) checkNodeRedis(optionsOf(client as NodeRedisLike))
  return client as RedisClientLike
}

function checkNodeRedis({ credentialsProvider, password }: NodeRedisOptions): void {
  if (password === undefined && credentialsProvider !== undefined && credentialsProvider.credentials === undefined) {
    throw new TypeError(`a credentialsProvider of the type "${credentialsProvider.type}" can't be read: give opts.client a function that makes a client`)
  }
}

function isIoRedis(client: RedisClientLike): client is IoRedisLike {
  return 'callBuffer' in client
}

function ioRedisSettings(options: object): ConnectionSettings {
  // Options for commands don't apply here.
  const { keyPrefix: _, commandTimeout: __, ...settings } = options as RedisOptions
  return settings
}

function optionsOf(client: RedisClientLike): NodeRedisOptions {
  const { options } = client as { options?: NodeRedisOptions }
  if (typeof options !== 'object' || options === null) throw new TypeError(UNREADABLE)
  return options
}

async function nodeRedisSettings({ socket = {}, username, password, database, credentialsProvider }: NodeRedisOptions): Promise<ConnectionSettings> {
  const { host = 'localhost', port = 6379, path, tls, family, connectTimeout, reconnectStrategy } = socket
  const credentials = password === undefined ? await credentialsProvider?.credentials?.() : { username, password }
  const ofTls = Object.fromEntries(Object.entries(socket).filter(([name]) => !NOT_OF_TLS.has(name)))
  const settings = {
    ...path === undefined ? { host, port } : { path },
    ...tls ? { tls: ofTls } : {}, family, connectTimeout, username: credentials?.username, password: credentials?.password, db: database,
    retryStrategy: retryOf(reconnectStrategy),
  }
  return Object.fromEntries(Object.entries(settings).filter(([, value]) => value !== undefined)) as ConnectionSettings
}

function retryOf(strategy: unknown): RedisOptions['retryStrategy'] | undefined {
  if (typeof strategy === 'number') return () => strategy
  if (typeof strategy !== 'function') return undefined
  return (times) => {
    const pauseMs: unknown = strategy(times, new Error('the connection is lost'))
    return typeof pauseMs === 'number' ? pauseMs : null
  }
}

function clusterOf(client: RedisClientLike): ClusterSettings | undefined {
  const { isCluster, startupNodes, options, _options: ofNodeRedis } = client as Record<string, any>
  if (isCluster === true && Array.isArray(startupNodes)) {
    const settings = startupNodes.find((node) => typeof node === 'object') ?? {}
    return { seeds: startupNodes.map(addressOf), settings: ioRedisSettings({ ...settings, ...options.redisOptions }) }
  }
  if (!Array.isArray(ofNodeRedis?.rootNodes)) return undefined
  throw new TypeError('the settings of a cluster of node-redis can\'t be used: name its nodes in opts.cluster, and its settings in opts.clientOpts')
}

function addressOf(node: number | string | { host?: string; port?: number }): NodeAddress {
  if (typeof node === 'object') return { host: node.host ?? '127.0.0.1', port: Number(node.port ?? 6379) }
  if (typeof node === 'number') return { host: '127.0.0.1', port: node }
  const { hostname, port } = new URL(node.includes('://') ? node : `redis://${node}`)
  return { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port || 6379) }
}

export type Send = (command: string, ...args: (string | Buffer | number)[]) => Promise<unknown>

/** Sends commands through the client itself. Strings are answered as bytes. A command that takes a key has it as its first argument. */
export function senderOf(client: RedisClientLike): Send {
  // ioredis looks up the positions of keys by lower-case command names.
  if (isIoRedis(client)) return (command, ...args) => client.callBuffer(command.toLowerCase(), ...args)
  const { _options: options } = client as Record<string, any>
  // For node-redis 5 and 4.
  const asBytes = { typeMapping: { 36: Buffer }, returnBuffers: true }
  const send = client.sendCommand.bind(client) as (...args: unknown[]) => Promise<unknown>
  return (command, ...args) => {
    const texts = [command, ...args.map((one) => typeof one === 'number' ? String(one) : one)]
    return Array.isArray(options?.rootNodes) ? send(texts[1], false, texts, asBytes) : send(texts, asBytes)
  }
}
