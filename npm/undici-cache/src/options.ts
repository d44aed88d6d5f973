// Validation of options.

import { hostname } from 'node:os'
import type { RedisOptions } from 'iovalkey'
import { checkClient, type ConnectionSettings, discard, keyPrefixOf, type RedisClientLike, seedsOf, settingsOf } from './client.js'
import type { NodeAddress } from './nodes.js'

export interface ConnectionOptions {
  /** Options of the client, iovalkey: `host`, `port`, `username`, `password`, `db`, `tls`, `sentinels`, ... `keyPrefix` is used as `prefix`. */
  clientOpts?: RedisOptions
  /**
   * A client of ioredis, iovalkey or node-redis, or a function that makes one. The store opens its own connections with the settings of the client: server,
   * TLS, user and password, database, sentinels, cluster nodes, reconnection pauses, prefix. `clientOpts` override them. A function is called for each
   * connection, and the store closes the client that it returns.
   */
  client?: RedisClientLike | (() => RedisClientLike)
  /** Nodes of a Redis Cluster, at least one; the others are discovered. */
  cluster?: readonly NodeAddress[]
  /** The prefix of all names on the server. @default 'larder:' */
  prefix?: string
  /** The site of the Larder gateway that serves the same URLs. @default 'default' */
  site?: string
  /**
   * The response header that lists tags, as `Cache-Tag` does. Groups in `Cache-Groups` always count.
   * @default `Cache-Tag`, `Cache-Tags`, `Surrogate-Key` and `xkey`
   */
  cacheTagsHeader?: string
  /** The timeout of a store operation, in milliseconds. @default 500 */
  timeout?: number
  /** Called with errors of the store, none of which fails a request. @default prints at most one error in ten seconds */
  errorCallback?: (error: Error) => void
}

export interface LarderCacheStoreOptions extends ConnectionOptions {
  /** The size limit of a body, in bytes. Larger bodies aren't stored. @default 10 MiB */
  maxEntrySize?: number
  /** Whether to keep copies in this process, which the server invalidates. @default true */
  tracking?: boolean
  /** The size limit of all copies in this process, in bytes. @default 128 MiB */
  maxSize?: number
  /** The maximum number of records with copies in this process. @default 100,000 */
  maxCount?: number
  /** The name of this process in answers to deletions and purges, at most 64 bytes. @default the host name with the process id */
  instance?: string
}

export interface CheckedConnection {
  /** Returns the settings of another connection. */
  readonly settings: () => Promise<ConnectionSettings>
  /** The given options, without the prefix. */
  readonly given: Pick<ConnectionOptions, 'client' | 'clientOpts'>
  readonly cluster: readonly NodeAddress[] | undefined
  readonly prefix: string
  readonly site: string
  readonly cacheTagsHeader: string | undefined
  readonly timeout: number
  readonly errorCallback: (error: Error) => void
}

export interface CheckedStore extends CheckedConnection {
  readonly maxEntrySize: number
  readonly tracking: boolean
  readonly maxSize: number
  readonly maxCount: number
  readonly instance: string
}

const MIB = 1 << 20
const ERROR_PAUSE_MS = 10_000

export function checkConnection(opts: ConnectionOptions = {}): CheckedConnection {
  checkObject('opts', opts)
  checkObject('opts.clientOpts', opts.clientOpts ?? {})
  const { keyPrefix, ...clientOpts } = opts.clientOpts ?? {}
  const { client } = opts
  const known = client && withClient(client, (made) => ({ seeds: seedsOf(made), keyPrefix: keyPrefixOf(made) }))
  const prefix = checkText('opts.prefix', opts.prefix ?? (keyPrefix?.toString() || known?.keyPrefix || 'larder:'))
  if (/[{}]/.test(prefix)) throw new TypeError(`expected opts.prefix without braces, got "${prefix}"`)
  return {
    settings: async () => ({ ...client && await withClient(client, settingsOf), ...clientOpts }),
    given: { clientOpts, ...client === undefined ? {} : { client } },
    cluster: opts.cluster ?? known?.seeds,
    prefix,
    site: checkText('opts.site', opts.site ?? 'default'),
    cacheTagsHeader: opts.cacheTagsHeader === undefined ? undefined : checkText('opts.cacheTagsHeader', opts.cacheTagsHeader).toLowerCase(),
    timeout: checkNumber('opts.timeout', opts.timeout ?? 500),
    errorCallback: checkFunction('opts.errorCallback', opts.errorCallback ?? printSeldom()),
  }
}

export function checkStore(opts: LarderCacheStoreOptions = {}): CheckedStore {
  const connection = checkConnection(opts)
  if (opts.tracking !== undefined && typeof opts.tracking !== 'boolean') {
    throw new TypeError(`expected opts.tracking to be a boolean, got ${typeof opts.tracking}`)
  }
  return {
    ...connection,
    tracking: opts.tracking ?? true,
    maxEntrySize: checkNumber('opts.maxEntrySize', opts.maxEntrySize ?? 10 * MIB),
    maxSize: checkNumber('opts.maxSize', opts.maxSize ?? 128 * MIB),
    maxCount: checkNumber('opts.maxCount', opts.maxCount ?? 100_000),
    instance: checkText('opts.instance', opts.instance ?? `${hostname()}:${process.pid}`),
  }
}

/** Uses a client, and closes it if it was created here. */
function withClient<T>(client: NonNullable<ConnectionOptions['client']>, use: (made: RedisClientLike) => T): T {
  if (typeof client !== 'function') return use(checkClient(client))
  const made = checkClient(client())
  try {
    return use(made)
  } finally {
    discard(made)
  }
}

function checkObject(name: string, value: unknown): void {
  if (typeof value !== 'object' || value === null) throw new TypeError(`expected ${name} to be an object, got ${typeof value}`)
}

function checkText(name: string, value: unknown): string {
  if (typeof value !== 'string') throw new TypeError(`expected ${name} to be a string, got ${typeof value}`)
  return value
}

function checkNumber(name: string, value: unknown): number {
  if (typeof value !== 'number' || !(value >= 0)) throw new TypeError(`expected ${name} to be a number from 0, got ${String(value)}`)
  return value
}

function checkFunction<T>(name: string, value: T): T {
  if (typeof value !== 'function') throw new TypeError(`expected ${name} to be a function, got ${typeof value}`)
  return value
}

function printSeldom(): (error: Error) => void {
  let last = -Infinity
  return (error) => {
    if (performance.now() - last < ERROR_PAUSE_MS) return
    last = performance.now()
    console.error(`@larder/undici-cache: ${error.message}`)
  }
}
